"""Describe a batched product of one row by a matrix for the native engine. Pure."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Final

from ...desc import Arg, PrimitiveAttr
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .chain import chain_source
from .convolution_chain import bounds
from .nest_builder import NestBuilder

#: Most columns of an item of work in rows of the matrix: 4 KiB of each are read in one piece.
_PART: Final = 1024
#: The same if the columns are read one after the other or 16 by 16.
_FEW: Final = 128
#: Bytes of a matrix in rows, and columns at most, whose rows are cut in halves: threads read each in the order of memory.
_FAR: Final = 3 << 19
_JOINED: Final = 4096
#: Bytes of a vector.
_WIDTH: Final = 64


def describe_row(
    depth: int, columns: int, order: str, offsets: Sequence[tuple[int, int]], distances: tuple[int, int, int],
    bias: bool, attr: PrimitiveAttr, swaps: bool = False,
) -> Program:  # fmt: skip
    """Return the program of products of rows (1, K) by matrices (K, N) into adjacent rows of dst.

    ``offsets`` are those of left and right of each product; they, the ``order`` and ``distances`` (lane, block, step, in
    bytes) are the kernel's. ``swaps`` if the rows are columns of weights, and the matrices are src.
    """
    build = NestBuilder()
    factors: tuple[LaunchArgument, ...] = (("m", (int(Arg.SRC), 0)), ("m", (int(Arg.WEIGHTS), 0)))
    if swaps:
        factors = factors[::-1]
    if order == "rows" and len(offsets) == 1 and _is_halved(depth, columns):
        factors, offsets, distances = _add_halves(build, depth, columns, offsets[0], distances, factors)
        depth = 2
    table = build.table([value for number, pair in enumerate(offsets) for value in (*pair, number * columns * 4)])
    dst: LaunchArgument = ("m", (int(Arg.DST), 0))
    residual = chain_source(attr)
    # The residual may be where dst is. Sums in rows are on the kernel's stack.
    sums = dst if residual == ("i", 0) or order == "rows" else build.book(len(offsets) * columns * 4)
    part = _FEW if order != "rows" else columns
    if order == "rows" and 2 * columns > _PART:
        # An even number of parts, which two threads share evenly.
        part = -(-columns // (2 * -(-columns // (2 * _PART))) // 16) * 16
    low, bound = bounds(attr)
    args: tuple[LaunchArgument, ...] = (
        *factors, ("m", (int(Arg.BIAS), 0)) if bias else ("i", 0), sums, dst,
        residual, ("t", table), *(("i", value) for value in (depth, columns, part, *distances)), ("f", low), ("f", bound),
    )  # fmt: skip
    build.launch(KernelSpec.of("gemv", order=order), args, len(offsets) * -(-columns // part))
    return build.program()


def _is_halved(depth: int, columns: int) -> bool:
    """Return whether the halves of a matrix in rows are multiplied apart."""
    return depth % 2 == 0 and columns <= _JOINED and 4 * depth * columns >= _FAR


def _add_halves(
    build: NestBuilder, depth: int, columns: int, offsets: tuple[int, int], distances: tuple[int, int, int],
    factors: tuple[LaunchArgument, ...],
) -> tuple[tuple[LaunchArgument, ...], list[tuple[int, int]], tuple[int, int, int]]:  # fmt: skip
    """Add the products of both halves, and return their sum as a product: factors, their offsets and distances."""
    half, (lane, block, step) = depth // 2, distances
    left, right = offsets
    row = -(-4 * columns // _WIDTH) * _WIDTH
    sums = build.book(2 * row)
    halves = [(left + each * half * lane, right + each * half * step, each * row) for each in range(2)]
    table = build.table([value for each in halves for value in each])
    numbers = (half, columns, columns, lane, block, step)
    args: tuple[LaunchArgument, ...] = (
        *factors, ("i", 0), sums, sums, ("i", 0), ("t", table), *(("i", value) for value in numbers),
        ("f", -math.inf), ("f", -math.inf),
    )  # fmt: skip
    build.launch(KernelSpec.of("gemv", order="rows"), args, 2)
    ones = build.table(list(struct.unpack("<q", struct.pack("<2f", 1.0, 1.0))))
    return (("t", ones), sums), [(0, 0)], (4, 0, row)
