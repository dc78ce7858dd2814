"""Describe a batched product of one row by a matrix for the native engine. Pure."""

from __future__ import annotations

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


def describe_row(
    depth: int, columns: int, order: str, offsets: Sequence[tuple[int, int]], distances: tuple[int, int, int],
    bias: bool, attr: PrimitiveAttr, swaps: bool = False,
) -> Program:  # fmt: skip
    """Return the program of products of rows (1, K) by matrices (K, N) into adjacent rows of dst.

    ``offsets`` are those of left and right of each product; they, the ``order`` and ``distances`` (lane, block, step, in
    bytes) are the kernel's. ``swaps`` if the rows are columns of weights, and the matrices are src.
    """
    build = NestBuilder()
    table = build.table([value for number, pair in enumerate(offsets) for value in (*pair, number * columns * 4)])
    dst: LaunchArgument = ("m", (int(Arg.DST), 0))
    residual = chain_source(attr)
    # The residual may be where dst is.
    sums = dst if residual == ("i", 0) else build.book(len(offsets) * columns * 4)
    part = _FEW if order != "rows" else columns
    if order == "rows" and 2 * columns > _PART:
        # An even number of parts, which two threads share evenly.
        part = -(-columns // (2 * -(-columns // (2 * _PART))) // 16) * 16
    low, bound = bounds(attr)
    factors: tuple[LaunchArgument, ...] = (("m", (int(Arg.SRC), 0)), ("m", (int(Arg.WEIGHTS), 0)))
    if swaps:
        factors = factors[::-1]
    args: tuple[LaunchArgument, ...] = (
        *factors, ("m", (int(Arg.BIAS), 0)) if bias else ("i", 0), sums, dst,
        residual, ("t", table), *(("i", value) for value in (depth, columns, part, *distances)), ("f", low), ("f", bound),
    )  # fmt: skip
    build.launch(KernelSpec.of("gemv", order=order), args, len(offsets) * -(-columns // part))
    return build.program()
