"""How products by tiles of AMX are cut: the height of tiles, and the groups along K of each instruction. Pure."""

from __future__ import annotations

from typing import Final

#: Rows of a tile, and groups of 4 bytes along K that it holds, at most.
_ROWS: Final = 16
_GROUPS: Final = 16
#: Least groups of an instruction if all have as many: fewer instructions are worth a change of configuration.
_FEW: Final = 12
#: Extensions of a processor whose tiles multiply bf16, and bytes. With VNNI, terms of bytes are added up.
BFLOATS: Final = ("amx_bf16",)
BYTES: Final = ("avx512_vnni", "amx_int8")


def tile_height(rows: int) -> int:
    """Return the rows of tiles that cover at least one row: as few tiles as can be, of even height."""
    return -(-rows // -(-rows // _ROWS))


def groups_of(total: int) -> int:
    """Return the most groups, up to 16, that ``total`` groups along K are whole products of."""
    return next(groups for groups in range(min(total, _GROUPS), 0, -1) if total % groups == 0)


def cut_groups(total: int) -> tuple[int, int, int]:
    """Return the groups of a product, how many products of so many there are, and the groups of one more product or 0."""
    groups = groups_of(total)
    if groups == total or groups >= _FEW:
        return groups, total // groups, 0
    return _GROUPS, total // _GROUPS, total % _GROUPS
