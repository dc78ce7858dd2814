"""Matmul of 8-bit integers into s32: packed register tiles with exact sums; zero points cost no second pass."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Matmul, MemoryDesc, PrimitiveAttr, zero_points_of
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .convolution_tiles import output_blocks, tile_positions
from .integer_amx import EXTENSIONS_OF

#: Bytes of packed rows that are multiplied by all columns before the next rows.
_STRIP: Final = 256 << 10
#: Bits of a zero point's mask: of rows and of columns of dst.
_ROWS, _COLUMNS = 1, 2


class NativeIntegerMatmul:
    """src u8 or s8 by weights s8 of rank 2, each in any strides; dst row-major s32 or ``any``.

    Attributes: zero points of src and weights, one each; of dst, one, one a row or one a column, any of them constant; and
    adding to dst. Sums are exact modulo 2**32.
    """

    engine_kind = "cpu"
    general = True

    def __init__(self, how: str) -> None:
        self.name = f"native:integer_{how}"
        self._how = how
        self.extensions = EXTENSIONS_OF.get(how, ())

    def reject(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> str | None:
        if why := target.lack_of(self.extensions):
            return why
        if op.src.ndims != 2 or op.bias is not None:
            return "only rank 2 without bias is supported"
        types = (op.src.dtype, op.weights.dtype, op.dst.dtype)
        if types not in (("u8", "s8", "s32"), ("s8", "s8", "s32")):
            return f"data types {', '.join(types)}; only u8 or s8 by s8 into s32 is supported"
        for md in (op.src, op.weights):
            if not md.is_any and md.layout.blocks:
                return f"layout {md.tag}; blocks are not supported"
        dst = self.complete(op, attr, target).dst
        if dst.layout.order[-1] != 1 or dst.layout.blocks or (dst.strides and dst.strides[1] != 1):
            return f"layout {dst}; only rows of neighbouring elements are supported"
        return _refuse_attributes(attr)

    def complete(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Matmul:
        src, weights, dst = (md.with_tag("") if md.is_any else md for md in (op.src, op.weights, op.dst))
        return replace(op, src=src, weights=weights, dst=dst)

    def program(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Program:
        (rows, depth), columns = op.src.dims, op.weights.dims[1]
        if rows * columns == 0:
            return Program((), ())
        positions = _positions(target.isa, rows)
        vectors = -(-columns // 16)
        blocks = output_blocks(target.isa, positions, 8)
        panels = -(-rows // positions)
        size = 4 if self._how == "vnni" else 2
        groups = -(-depth // size)
        signed = op.src.dtype == "s8"
        kernels = (
            KernelSpec.of("integer_pack", how=self._how, signed=signed, width=positions, side="left"),
            KernelSpec.of("integer_pack", how=self._how, signed=True, width=16, side="right"),
            KernelSpec.of("integer_product", how=self._how, positions=positions, blocks=blocks),
        )
        places, scratchpad = _book(
            panels * groups * positions * 4, vectors * groups * 64, panels * positions * 4, vectors * 64
        )
        left, right, row_terms, column_terms = places
        masks = {q.arg: q.mask for q in attr.zero_points}
        points, tables = _zero_points(attr)
        none: LaunchArgument = ("i", 0)
        offsets = [points.get(int(arg), none) for arg in (Arg.SRC, Arg.WEIGHTS)]
        result = points.get(int(Arg.DST), none)
        by_row = masks.get(int(Arg.DST)) == _ROWS

        def pack(arg: Arg, md: MemoryDesc, along: int, to: LaunchArgument, terms: LaunchArgument, mine: bool) -> Launch:
            vector, step = md.outer_strides()[1 - along], md.outer_strides()[along]
            varies = int(masks.get(int(Arg.DST), 0) != 0)
            args = (
                ("m", (int(arg), 0)), to, terms, *offsets, result if mine else none,
                *(("i", n) for n in (md.dims[1 - along], depth, vector, step, varies, int(signed))),
            )  # fmt: skip
            width = positions if along else 16
            return Launch(0 if along else 1, args, -(-md.dims[1 - along] // width))

        strip_panels = max(1, min(panels, _STRIP // max(groups * positions * 4, 1)))
        strips = -(-panels // strip_panels)
        numbers = (rows, columns, groups, strip_panels, strips, op.dst.outer_strides()[0] * 4)
        adds = int(bool(attr.post_ops))
        args: tuple[LaunchArgument, ...] = (
            left, right, row_terms, column_terms, ("m", (int(Arg.DST), 0)), ("i", adds), *(("i", n) for n in numbers),
        )  # fmt: skip
        launches = (
            pack(Arg.SRC, op.src, 1, left, row_terms, by_row),
            pack(Arg.WEIGHTS, op.weights, 0, right, column_terms, not by_row),
            Launch(2, args, -(-vectors // blocks) * strips),
        )
        return Program(kernels, launches, tables, scratchpad)


def _positions(isa: str, rows: int) -> int:
    """Return the rows of a tile: one of three sizes, so that few kernels do."""
    large = tile_positions(isa, 1 << 20)
    if rows == 1:
        return 1
    return large if rows > 2 * large // 3 else max(2, large // 4 * 2)


def _zero_points(attr: PrimitiveAttr) -> tuple[dict[int, LaunchArgument], bytes]:
    """Return the place of each argument's zero points, and the tables that hold those which are constants."""
    places: dict[int, LaunchArgument] = {}
    tables = b""
    for item in attr.zero_points:
        places[item.arg] = ("t", len(tables)) if item.values else ("m", (zero_points_of(item.arg), 0))
        tables += item.packed("zero_points")
    return places, tables


def _book(*sizes: int) -> tuple[list[LaunchArgument], int]:
    """Return places in the scratchpad, each on a cache line of its own, and the size of it."""
    places: list[LaunchArgument] = []
    end = 0
    for size in sizes:
        places.append(("s", end))
        end += -(-size // 64) * 64 + 64
    return places, end


def _refuse_attributes(attr: PrimitiveAttr) -> str | None:
    if attr.scales:
        return "scales are not supported"
    for item in attr.zero_points:
        if item.mask not in ((0, _ROWS, _COLUMNS) if item.arg == Arg.DST else (0,)):
            return f"zero points with mask {item.mask:#x} of argument {item.arg} are not supported"
    simple = [p.kind == "sum" and p.alpha == 1.0 and p.beta == 0.0 and p.dtype in ("", "s32") for p in attr.post_ops]
    if len(simple) > 1 or not all(simple):
        return "the only post-op supported is one sum with the scale 1"
    return None
