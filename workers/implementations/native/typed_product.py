"""Matmul of f64, and of integers of one type without attributes, whose products are exact: register tiles as of f32."""

from __future__ import annotations

import math
from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Matmul, MemoryDesc, PrimitiveAttr
from ...desc.data_type import item_size
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..inference import refuse_beyond_inference
from ..program import LaunchArgument, Program
from .blocks import refuse
from .chain import chain_source
from .convolution_chain import bounds, refuse_bounded
from .convolution_tiles import row_tiles
from .nest_builder import NestBuilder
from .product import refuse_left
from .product_shape import Shape, flat_index, moved, offset, packed_tag

_TYPES: Final = ("f64", "s64", "u64", "s32", "u32", "s16", "u16")
#: ISA level -> rows of a large tile: 16 sums take two vectors of 512 bits, and products of integers registers of their own.
_POSITIONS: Final = {"x86-64-v4": 14, "x86-64-v3": 2}
_INTEGER_POSITIONS: Final = {"x86-64-v4": 10}
#: Bytes of rows that are multiplied by all columns before the next rows: they stay in the second-level cache.
_STRIP: Final = 512 << 10
#: Least tiles of a strip.
_STRIP_TILES: Final = 4
#: Inputs that are summed at once if rows with all of theirs do not fit in that, and the most slices.
_SLICE: Final = 512
_SLICES: Final = 16
#: Rows at multiples of so many bytes compete for the same lines of the first-level cache; bytes of a line.
_ALIASING: Final = 4096
_LINE: Final = 64
#: So few tiles of rows are not worth a packed copy of the columns.
_FEW_TILES: Final = 3
#: Bytes of rows of the right matrix that are read where they are: the copy costs more.
_NEAR: Final = 128 << 10
#: The level on which copies of near rows that compete for lines were measured, ways of its first-level cache, and tiles of rows
#: from which on they take less time.
_COMPETING: Final = "x86-64-v3"
_WAYS: Final = 8
_MANY_TILES: Final = 16


class NativeTypedMatmul:
    """Src with adjacent elements in rows or columns, weights packed or without blocks, row-major dst, one data type.

    Of f64, relu and one addition as post-ops.
    """

    name = "native:typed_tiles"
    engine_kind = "cpu"
    general = False

    def reject(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> str | None:
        dense = replace(op, src=_without_strides(op.src), weights=_without_strides(op.weights))
        if beyond := refuse_beyond_inference(dense, attr):
            return beyond
        if op.src.repeats or op.weights.repeats:
            return "strides that repeat elements are not supported"
        if not op.bias_is_row:
            return f"bias {op.bias}; only one value a column is supported"
        op = self.complete(op, attr, target)
        types = {md.dtype for md in (op.src, op.weights, op.bias, op.dst) if md is not None}
        if len(types) > 1 or not types <= {*_TYPES}:
            return f"data types {', '.join(sorted(types))}; only one of {', '.join(_TYPES)} is supported"
        if op.dst.dtype != "f64" and (op.bias is not None or attr.post_ops):
            return "bias and post-ops of integers are not supported"
        if not (op.dst.is_plain and (op.bias is None or op.bias.is_plain)):
            return "bias and dst must be row-major"
        if op.weights.tag != packed_tag(op.weights.ndims) and op.weights.layout.blocks:
            return f"weights layout {op.weights.tag}"
        return refuse(op.src, op.dst, dtypes=_TYPES) or refuse_left(op.src) or refuse_bounded(attr, op.dst)

    def complete(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Matmul:
        weights = op.weights.with_tag(packed_tag(op.weights.ndims)) if op.weights.is_any else op.weights
        src, dst = (md.with_tag("") if md.is_any else md for md in (op.src, op.dst))
        bias = op.bias.with_tag("") if op.bias is not None and op.bias.is_any else op.bias
        return replace(op, src=src, weights=weights, bias=bias, dst=dst)

    def program(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Program:
        shape, dtype = Shape.broadcast(op.src, op.weights, op.dst), op.dst.dtype
        if shape.rows * shape.columns * len(shape.batch) == 0:
            return Program((), ())
        size = item_size(dtype)
        build = NestBuilder()
        most = (_POSITIONS if dtype == "f64" else _INTEGER_POSITIONS).get(target.isa, 1)
        positions, large, tiles = row_tiles(target.isa, shape.rows, most)
        groups = -(-shape.columns // 16)
        # With one row, so many sums are independent.
        blocks = 4 if positions == 1 and target.isa == "x86-64-v4" and groups >= 4 else 1
        low, bound = bounds(attr)
        slices = _slices(shape, size) if dtype == "f64" and low == -math.inf else [(0, shape.depth)]
        strip_tiles = min(tiles, max(_STRIP_TILES, _STRIP // (max(slices[0][1], 1) * positions * size)))
        strips = -(-tiles // strip_tiles)
        source, rows = _rows(build, op.src, positions)
        strides = [size * stride for stride in rows.outer_strides()]
        left = [offset(index, strides) for index, _ in shape.batch]
        at, right, block, right_row = _columns(build, shape, op.weights, tiles, slices[0][1], target)
        matrix = shape.rows * shape.columns * size
        table = build.table([n for i, pair in enumerate(zip(left, right, strict=True)) for n in (*pair, i * matrix)])
        sizes = (tiles, large, shape.columns, strips, *strides[-2:], block, right_row, shape.columns * size)
        # The products of u64 are those of s64, bit for bit.
        kernel = KernelSpec.of(
            "typed_gemm", dtype="s64" if dtype == "u64" else dtype, positions=positions, blocks=blocks
        )
        dst: LaunchArgument = ("m", (int(Arg.DST), 0))
        bias: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if op.bias is not None else ("i", 0)
        residual = chain_source(attr)
        for first, count in slices:
            args: tuple[LaunchArgument, ...] = (
                moved(source, first * strides[-1]), moved(at, first * right_row), bias, dst, residual, ("t", table),
                ("i", count), *(("i", n) for n in sizes), ("f", low),
                ("f", bound if first + count == shape.depth else -math.inf),
            )  # fmt: skip
            build.launch(kernel, args, len(shape.batch) * strips * -(-groups // blocks))
            # The next slice adds to the sums in dst.
            bias, residual = ("i", 0), dst
        return build.program()


def _slices(shape: Shape, size: int) -> list[tuple[int, int]]:
    """Return (first, count) of the inputs that are summed at once, see `product`."""
    if shape.rows * shape.depth * size <= _STRIP or shape.depth <= _SLICE:
        return [(0, shape.depth)]
    count = -(-shape.depth // min(-(-shape.depth // _SLICE), _SLICES))
    return [(first, min(count, shape.depth - first)) for first in range(0, shape.depth, count)]


def _rows(build: NestBuilder, left: MemoryDesc, positions: int) -> tuple[LaunchArgument, MemoryDesc]:
    """Return the left factor: its place and layout, copied with room between rows that compete for the cache."""
    source: LaunchArgument = ("m", (int(Arg.SRC), 0))
    size, (*_, row, lane) = item_size(left.dtype), left.outer_strides()
    if lane != 1 or positions == 1 or row * size % _ALIASING:
        return source, left
    steps = [1, left.dims[-1] + _LINE // size]
    for extent in left.dims[-2:0:-1]:
        steps.append(steps[-1] * extent)
    apart = MemoryDesc(left.dims, left.dtype, strides=tuple(reversed(steps)))
    to = build.book(apart.nbytes)
    build.move(left, apart, source, to)
    return to, apart


def _columns(
    build: NestBuilder, shape: Shape, right: MemoryDesc, tiles: int, most: int, target: Target
) -> tuple[LaunchArgument, list[int], int, int]:
    """Return the right factor: its place, the offset of each product's matrix, bytes to the next 16 columns and next row.

    ``most`` of its rows are read at once.
    """
    source: LaunchArgument = ("m", (int(Arg.WEIGHTS), 0))
    packed = right.with_tag(packed_tag(right.ndims))
    size = item_size(right.dtype)
    if right.tag != packed.tag:
        strides = [size * stride for stride in right.outer_strides()]
        *_, row, column = strides
        # More rows than its ways that compete for the same lines of the first-level cache are read from the second for each tile.
        competes = (
            target.isa == _COMPETING and tiles >= _MANY_TILES and most * math.gcd(row, _ALIASING) > _WAYS * _ALIASING
        )
        is_near = tiles < _FEW_TILES or (most * row <= _NEAR and not competes)
        # Without loads under masks, kernels read whole groups of columns.
        is_whole = target.isa_at_least("x86-64-v3") or shape.columns % 16 == 0
        if shape.depth == 0 or (is_whole and (shape.columns == 1 or (column == size and is_near))):
            return source, [offset(index, strides) for _, index in shape.batch], 16 * size, row
        to = build.book(packed.nbytes)
        build.move(right, packed, source, to)
        source = to
    matrix = -(-shape.columns // 16) * shape.depth * 16 * size
    offsets = [flat_index(index, right.dims[:-2]) * matrix for _, index in shape.batch]
    return source, offsets, shape.depth * 16 * size, 16 * size


def _without_strides(md: MemoryDesc) -> MemoryDesc:
    return md.with_tag("") if md.strides else md
