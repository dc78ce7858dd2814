"""Describe a batched matrix product for the native engine: how rows are packed, columns read and work cut. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ...desc import Arg, MemoryDesc, PrimitiveAttr
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .chain import chain_source
from .convolution_chain import bounds
from .convolution_tiles import output_blocks, tile_positions
from .nest_builder import NestBuilder

#: Bytes of packed rows that are multiplied by all columns before the next rows: they stay in the second-level cache.
_STRIP: Final = 512 << 10
#: Least panels of a strip: fewer would read the columns from memory too often.
_STRIP_PANELS: Final = 4
#: So many panels of rows are worth a packed copy of row-major columns.
_WORTH_PACKING: Final = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """``batch`` lists (left matrix, right matrix, dst matrix) of each product of ``rows`` x ``depth`` x ``columns``."""

    rows: int
    depth: int
    columns: int
    batch: tuple[tuple[int, int, int], ...]

    @classmethod
    def broadcast(cls, left: MemoryDesc, right: MemoryDesc, dst: MemoryDesc) -> Shape:
        """Return the shape of a product of (..., M, K) by (..., K, N) with broadcast batch dimensions."""
        *outer, rows, columns = dst.dims
        batch: list[tuple[int, int, int]] = []
        for number in range(math.prod(outer)):
            index = []
            for size in reversed(outer):
                index.append(number % size)
                number //= size
            index.reverse()
            batch.append((_flat(index, left.dims[:-2]), _flat(index, right.dims[:-2]), len(batch)))
        return cls(rows, left.dims[-1], columns, tuple(batch))


def packed_tag(ndims: int) -> str:
    """Return the tag of (..., K, N) with 16 columns side by side: ``Ba16b`` for 2."""
    letters = "abcdefghijkl"[:ndims]
    return f"{letters[:-2]}{letters[-1].upper()}{letters[-2]}16{letters[-1]}"


def describe(shape: Shape, right: MemoryDesc, bias: bool, attr: PrimitiveAttr, isa: str) -> Program:
    """Return the program of a product of row-major left matrices by ``right`` (..., K, N) into a row-major dst."""
    if shape.rows * shape.columns * len(shape.batch) == 0:
        return Program((), ())
    positions = tile_positions(isa, shape.rows)
    panels = -(-shape.rows // positions)
    vectors = -(-shape.columns // 16)
    blocks = output_blocks(isa, positions, vectors)
    # The table begins with zeros, both factors of a product over nothing.
    build = NestBuilder(bytes(64))
    left, panel, left_matrix = _pack_rows(build, shape, positions, panels)
    source, right_block, right_row, right_matrix = _columns(build, shape, right, panels)
    depth = shape.depth
    if depth == 0:
        left, panel, left_matrix, depth = ("t", 0), 0, 0, 1
        source, right_block, right_row, right_matrix = ("t", 0), 0, 0, 0
    step = build.table([0, depth, 0])
    batch = [(a * left_matrix, b * right_matrix, c * shape.rows * shape.columns * 4) for a, b, c in shape.batch]
    table = build.table([value for entry in batch for value in entry])
    strip_panels = min(panels, max(_STRIP_PANELS, _STRIP // max(panel, 1)))
    strips = -(-panels // strip_panels)
    low, bound = bounds(attr)
    sizes = (
        shape.rows, shape.columns, strips, strip_panels, panel, right_block, right_row, shape.columns * 4,
    )  # fmt: skip
    bias_at: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if bias else ("i", 0)
    args: tuple[LaunchArgument, ...] = (
        left, source, bias_at, ("m", (int(Arg.DST), 0)), chain_source(attr), ("t", table), ("t", step),
        *(("i", value) for value in sizes), ("f", low), ("f", bound),
    )  # fmt: skip
    kernel = KernelSpec.of("gemm", positions=positions, blocks=blocks)
    build.launch(kernel, args, len(batch) * strips * -(-vectors // blocks))
    return build.program()


def _pack_rows(build: NestBuilder, shape: Shape, positions: int, panels: int) -> tuple[LaunchArgument, int, int]:
    """Add the packing of rows; return its place and the bytes of a panel and of a matrix."""
    row = shape.depth * 4
    matrix = shape.rows * row
    src: LaunchArgument = ("m", (int(Arg.SRC), 0))
    if positions == 1 or shape.depth == 0:
        return src, row, matrix
    count = max(a for a, _, _ in shape.batch) + 1
    panel = shape.depth * positions * 4 + 64
    to = build.book(count * panels * panel)
    sizes = (panels, shape.rows, shape.depth, matrix, row, panel)
    args: tuple[LaunchArgument, ...] = (src, to, *(("i", value) for value in sizes))
    build.launch(KernelSpec.of("gemm_pack", positions=positions), args, count * panels)
    return to, panel, panels * panel


def _columns(build: NestBuilder, shape: Shape, right: MemoryDesc, panels: int) -> tuple[LaunchArgument, int, int, int]:
    """Return the place of the columns and the bytes from 16 columns to the next, to the next row and matrix."""
    source: LaunchArgument = ("m", (int(Arg.WEIGHTS), 0))
    packed = right.with_tag(packed_tag(right.ndims))
    matrix = -(-shape.columns // 16) * shape.depth * 64
    if right.is_plain and panels < _WORTH_PACKING:
        return source, 64, shape.columns * 4, shape.depth * shape.columns * 4
    if right.tag != packed.tag and right.elements:
        to = build.book(packed.nbytes)
        build.move(right, packed, source, to)
        source = to
    return source, shape.depth * 64, 64, matrix


def _flat(index: list[int], dims: tuple[int, ...]) -> int:
    flat = 0
    for i, size in zip(index, dims, strict=True):
        flat = flat * size + (i if size > 1 else 0)
    return flat
