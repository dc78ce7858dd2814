"""Describe a batched product with factors of f16 or bf16, which become floats where they are used. Pure."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ...desc import Arg, MemoryDesc, PrimitiveAttr, item_size
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .chain import chain_source
from .convolution_chain import bounds
from .convolution_tiles import output_blocks, product_tiles
from .nest_builder import NestBuilder
from .product_shape import Shape, flat_index, moved, offset, packed_tag

#: Bytes of rows, as floats, that are multiplied by all columns before the next rows.
_STRIP: Final = 512 << 10
#: Least tiles of a strip: each strip converts the columns again.
_STRIP_TILES: Final = 16
#: Inputs that are summed at once: columns of so many, as floats, stay in the second-level cache.
_SLICE: Final = 1024
#: ISA level -> rows, at most, of products by packed columns that a kernel converts in registers, in each tile; `_MANY` on others.
#: With vectors of 512 bits a conversion takes the place of a multiplication or two.
_FEW: Final = {"x86-64-v4": 42}
_MANY: Final = 128
#: ISA levels with instructions that convert f16, and registers enough to do so within a product.
_IN_REGISTERS: Final = ("x86-64-v3", "x86-64-v4")
#: Items of work of a product: each has room of its own for converted columns.
_ITEMS: Final = 64
#: Columns of an item of work of a product of few rows: in rows of the matrix, pieces are longer.
_PART: Final = 128
_LONG_PART: Final = 1024
#: Rows at multiples of so many bytes compete for the same lines of the first-level cache; floats of a line.
_ALIASING: Final = 4096
_LINE: Final = 16
_NONE: Final[LaunchArgument] = ("i", 0)


class Columns(NamedTuple):
    """The right factor: its place, the offset of each product's matrix, its order, and distances in bytes.

    ``block`` is from 16 columns to the next 16 if they are packed, ``row`` from one k to the next, ``column`` from one column
    to the next.
    """

    at: LaunchArgument
    offsets: list[int]
    order: str
    block: int
    row: int
    column: int


def describe_narrow(
    shape: Shape, left: MemoryDesc, right: MemoryDesc, bias: MemoryDesc | None, dst: str, attr: PrimitiveAttr, isa: str
) -> Program:
    """Return the program of a product of ``left`` (..., M, K) by ``right`` (..., K, N) into a row-major dst of a data type.

    ``right`` is packed or has no blocks.
    """
    if shape.rows * shape.columns * len(shape.batch) == 0:
        return Program((), ())
    # The table begins with zeros, both factors of a product over nothing.
    build = NestBuilder(bytes(64))
    none = [0] * len(shape.batch)
    rows: _Rows = (("t", 0), 0, none)
    columns = Columns(("t", 0), none, "packed", 0, 0, 0)
    if shape.depth:
        rows, columns = _rows(build, shape, left), _columns(build, shape, right)
    is_few = shape.rows == 1 or (shape.rows <= _FEW.get(isa, _MANY) and columns.order == "packed")
    if isa in _IN_REGISTERS and is_few and shape.depth:
        _describe_few(build, shape, rows, columns, (right.dtype, bias, dst), attr, isa)
    else:
        _describe_many(build, shape, rows, columns, (right.dtype, bias, dst), attr, isa)
    return build.program()


_Rows = tuple[LaunchArgument, int, list[int]]
_Types = tuple[str, MemoryDesc | None, str]


def _describe_few(
    build: NestBuilder, shape: Shape, left: _Rows, columns: Columns, kinds: _Types, attr: PrimitiveAttr, isa: str
) -> None:
    """Add the launch of a product whose columns are converted in registers."""
    at, row, lefts = left
    right, bias, dst = kinds
    padded = -(-shape.columns // 16) * 64
    number = len(shape.batch)
    sums = build.book(number * shape.rows * padded)
    matrix = shape.rows * shape.columns * item_size(dst)
    values = [
        value
        for i, pair in enumerate(zip(lefts, columns.offsets, strict=True))
        for value in (*pair, i * matrix, i * shape.rows * padded)
    ]
    part = _LONG_PART if columns.order == "rows" else _PART
    part = min(part, padded // 4)
    heights, (height, large, tiles) = product_tiles(isa, shape.rows)
    kernel = KernelSpec.of(
        "narrow_gemv", order=columns.order, heights=heights, right=right, bias=bias.dtype if bias else "", dst=dst
    )
    step = columns.column if columns.order == "columns" else columns.row
    numbers = (shape.rows, tiles, height, large, shape.depth, shape.columns, part, row, columns.block, step)
    low, bound = bounds(attr)
    args: tuple[LaunchArgument, ...] = (
        at, columns.at, ("m", (int(Arg.BIAS), 0)) if bias else _NONE, sums, ("m", (int(Arg.DST), 0)), chain_source(attr),
        ("t", build.table(values)), *(("i", n) for n in numbers), ("f", low), ("f", bound),
    )  # fmt: skip
    build.launch(kernel, args, number * -(-shape.columns // part))


def _describe_many(
    build: NestBuilder, shape: Shape, left: _Rows, columns: Columns, kinds: _Types, attr: PrimitiveAttr, isa: str
) -> None:
    """Add the launches of a product whose columns are converted before, one for each slice of the inputs."""
    at, row, lefts = left
    right, bias, dst = kinds
    heights, (height, large, tiles) = product_tiles(isa, shape.rows)
    vectors = -(-shape.columns // 16)
    blocks = output_blocks(isa, heights[0], max(vectors, 2))
    slices = _slices(shape.depth)
    most = slices[0][1]
    strip_tiles = max(_STRIP_TILES, _STRIP // (max(most, 1) * height * 4))
    strips = -(-tiles // strip_tiles)
    parts = -(-vectors // blocks)
    number = len(shape.batch)
    group = -(-parts // max(1, _ITEMS // (number * strips)))
    items = number * strips * -(-parts // group)
    # The kernel converts one input, of zeros, for a product over nothing.
    item_room = blocks * (max(most, 1) + heights[0]) * 64
    room = build.book(items * item_room)
    padded = -(-vectors // blocks) * blocks * 64 if len(slices) > 1 else 0
    sums = build.book(number * shape.rows * padded) if padded else _NONE
    matrix = shape.rows * shape.columns * item_size(dst)
    values = [value for i, pair in enumerate(zip(lefts, columns.offsets, strict=True)) for value in (*pair, i * matrix)]
    table: LaunchArgument = ("t", build.table(values))
    kernel = KernelSpec.of(
        "narrow_gemm", heights=heights, blocks=blocks, order=columns.order, right=right, bias=bias.dtype if bias else "",
        dst=dst,
    )  # fmt: skip
    sizes = (
        tiles, height, large, shape.columns, strips, group, row, columns.block, columns.row, columns.column,
    )  # fmt: skip
    low, bound = bounds(attr)
    for first, count in slices:
        step: LaunchArgument = ("t", build.table([0, max(count, 1), 0]))
        is_last = first + count == shape.depth
        args: tuple[LaunchArgument, ...] = (
            moved(at, first * 4), moved(columns.at, first * columns.row), ("m", (int(Arg.BIAS), 0)) if bias else _NONE,
            ("m", (int(Arg.DST), 0)), chain_source(attr), table, step, *(("i", n) for n in sizes), room, ("i", item_room),
            sums, ("i", padded), ("i", shape.rows * padded), ("i", int(first == 0)), ("i", int(is_last)), ("f", low),
            ("f", bound),
        )  # fmt: skip
        build.launch(kernel, args, items)


def _slices(depth: int) -> list[tuple[int, int]]:
    """Return (first, count) of the inputs that are summed at once: slices of almost equal size."""
    number = max(1, -(-depth // _SLICE))
    count = -(-depth // (16 * number)) * 16
    return [(first, min(count, depth - first)) for first in range(0, depth, count)] if depth else [(0, 0)]


def _rows(build: NestBuilder, shape: Shape, left: MemoryDesc) -> _Rows:
    """Return the left factor as rows of floats: its place, the distance from row to row, the offset of each matrix.

    Others are converted, each element once, with room between rows that would compete for the cache.
    """
    at: LaunchArgument = ("m", (int(Arg.SRC), 0))
    is_apart = shape.rows > 1 and left.dims[-1] * 4 % _ALIASING == 0
    steps = [] if left.layout.blocks else left.outer_strides()
    if left.dtype != "f32" or left.layout.blocks or (steps[-1] != 1 and left.dims[-1] > 1) or is_apart:
        strides = [1, left.dims[-1] + (_LINE if is_apart else 0)]
        for extent in left.dims[-2:0:-1]:
            strides.append(strides[-1] * extent)
        floats = MemoryDesc(left.dims, "f32", strides=tuple(reversed(strides)))
        to = build.book(math.prod(left.dims[:-1]) * strides[1] * 4)
        build.move(left, floats, at, to)
        at, steps = to, floats.outer_strides()
    distances = [4 * step for step in steps]
    return at, distances[-2], [offset(index, distances) for index, _ in shape.batch]


def _columns(build: NestBuilder, shape: Shape, right: MemoryDesc) -> Columns:
    """Return the right factor, packed first if neither rows nor columns have adjacent elements."""
    at: LaunchArgument = ("m", (int(Arg.WEIGHTS), 0))
    size = item_size(right.dtype)
    packed = right.with_tag(packed_tag(right.ndims))
    if right.tag != packed.tag:
        strides = [size * step for step in right.outer_strides()]
        *_, row, column = strides
        offsets = [offset(index, strides) for _, index in shape.batch]
        if column == size or shape.columns == 1:
            return Columns(at, offsets, "rows", 0, row, size)
        if row == size or shape.depth == 1:
            return Columns(at, offsets, "columns", 0, size, column)
        to = build.book(packed.nbytes)
        build.move(right, packed, at, to)
        at = to
    matrix = -(-shape.columns // 16) * shape.depth * 16 * size
    offsets = [flat_index(index, right.dims[:-2]) * matrix for _, index in shape.batch]
    return Columns(at, offsets, "packed", shape.depth * 16 * size, 16 * size, 0)
