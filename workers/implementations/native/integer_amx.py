"""The launches of an integer product by tiles of AMX: the terms of each output, then tiles of positions."""

from __future__ import annotations

from typing import Final

from ...desc import Arg, PrimitiveAttr, item_size
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument
from .amx_products import BYTES, cut_groups, groups_of, tile_height
from .integer_epilogue import Epilogue
from .integer_reduce import Outputs, Positions, add_terms, scaled_place
from .nest_builder import NestBuilder

#: Bytes of src that are multiplied by all weights before the next: they stay in the second-level cache.
_STRIP: Final = 256 << 10
#: Work is cut into at least so many items if it can be, which threads share evenly.
_ITEMS: Final = 8
#: Bytes of a group of weights of 16 outputs.
_GROUP: Final = 64
#: Rows or positions, at most, of which tiles of VNNI add up weights meanwhile faster than a pass over all weights is.
_FEW: Final = 16
#: Least groups of an instruction, of 16: with fewer, VNNI is as fast.
_FILLED: Final = 3
#: How 8-bit numbers are multiplied -> the extensions that it needs: VNNI for vectors of 512 bits or, on AVX2, of 256.
EXTENSIONS_OF: Final = {"amx": BYTES, "vnni": ("avx512_vnni", "avx_vnni")}


def copied_how(how: str, signed: bool) -> str:
    """Return how src is copied for a way to multiply: tiles have instructions for signed numbers."""
    return "vnni" if how == "bytes" or (how == "amx" and not signed) else how


def fills_tiles(groups: int) -> bool:
    """Return whether instructions on tiles that add up so many groups a step are worth it."""
    return groups_of(groups) >= min(groups, _FILLED)


def is_few_with_point(attr: PrimitiveAttr, rows: int) -> bool:
    """Return whether sums of weights are needed, and others add them up beside a product of so few rows."""
    return rows <= _FEW and any(item.arg == Arg.SRC for item in attr.zero_points)


def reduce_by_tiles(
    build: NestBuilder, src: LaunchArgument, dtype: str, weights: LaunchArgument, positions: Positions, outputs: Outputs,
    epilogue: Epilogue, exact: bool,
) -> None:  # fmt: skip
    """Add the launches of a product of ``dtype`` by s8; steps have the same number of groups each."""
    total = positions.steps[0][1]
    groups, products, tail = cut_groups(total) if len(positions.steps) == 1 else (groups_of(total), 0, 0)
    products = products or total // groups
    count = total * len(positions.steps)
    terms = add_terms(build, "vnni", weights, 0, count, outputs, epilogue, exact, "s8")
    blocks = -(-outputs.channels // 16)
    height = tile_height(positions.columns)
    across = -(-positions.columns // height)
    tiles, parts = positions.rows * across, -(-blocks // 2)
    items = outputs.images * outputs.groups * parts
    most = max(1, _STRIP * tiles // max(positions.image, 1))
    strip = min(most, -(-tiles // -(-_ITEMS // items)))
    strip = min(tiles, strip + strip % 2)
    strips = -(-tiles // strip)
    size, other = item_size(outputs.dst.dtype), epilogue.residual_dtype
    other_size = item_size(other) if other else 0
    line, area = outputs.groups * outputs.channels, positions.rows * positions.columns
    steps = [value for offset, _ in positions.steps for value in (offset, products)]
    one_more = [positions.steps[0][0], 1]
    args: tuple[LaunchArgument, ...] = (
        src, weights, ("m", (int(Arg.DST), 0)), epilogue.residual, *terms, *scaled_place(epilogue, exact),
        ("t", build.table(steps)), ("t", build.table(one_more)),
        *(
            ("i", n)
            for n in (
                len(positions.steps), positions.rows, positions.columns, height, strip, strips, outputs.groups, blocks,
                outputs.channels, positions.image, positions.group, positions.row, positions.column,
                blocks * count * _GROUP, count * _GROUP, area * line * size, line * size, area * line * other_size,
                line * other_size, groups, tail, (total - tail) * 4,
            )
        ),
        ("f", epilogue.weight), ("f", epilogue.low), ("f", epilogue.high),
    )  # fmt: skip
    kernel = KernelSpec.of(
        "integer_amx", src=dtype, dtype=outputs.dst.dtype, residual=other, exact=exact, part=outputs.channels % 16 != 0
    )
    build.launch(kernel, args, items * strips)
