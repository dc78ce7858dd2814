"""Describe a batched product into few columns, or of few rows, whose inputs are adjacent, for the native engine. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...desc import Arg, PrimitiveAttr
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument
from .chain import chain_source
from .convolution_chain import bounds
from .nest_builder import NestBuilder
from .product_shape import moved

#: Bytes of the many of an item of work.
_PART: Final = 128 << 10
#: Those that are multiplied before the next ones.
_BLOCK: Final = 16


def describe_few(
    build: NestBuilder, sizes: tuple[int, int, int], factors: tuple[LaunchArgument, LaunchArgument], distances: tuple[int, int],
    offsets: Sequence[tuple[int, int]], few: str, bias: bool, attr: PrimitiveAttr, place: tuple[int, int] = (0, 0),
) -> None:  # fmt: skip
    """Add the launch of products of (rows, depth, columns) ``sizes`` into adjacent matrices of dst; ``few`` as the kernel's.

    ``distances`` are those from row to row of the left factor and of the right one transposed, in bytes, ``offsets`` those of
    both factors of each product. ``place`` says how many bytes of dst, and of a bias, are before the first column, and how
    many there are from row to row of dst: 0 if these have no other columns.
    """
    rows, depth, columns = sizes
    first, pitch = place[0], place[1] or columns * 4
    matrix = rows * pitch
    table = build.table([value for number, pair in enumerate(offsets) for value in (*pair, number * matrix)])
    many = columns if few == "rows" else rows
    # Items of one size, which threads share evenly.
    parts = -(-many // max(_BLOCK, _PART // max(depth * 4, 1)))
    part = -(-many // (_BLOCK * parts)) * _BLOCK
    low, bound = bounds(attr)
    args: tuple[LaunchArgument, ...] = (
        *factors, ("m", (int(Arg.BIAS), first)) if bias else ("i", 0), ("m", (int(Arg.DST), first)),
        moved(chain_source(attr), first), ("t", table), ("t", build.table([0] * 8)),
        *(("i", n) for n in (rows, columns, part, depth, *distances, pitch)), ("f", low), ("f", bound),
    )  # fmt: skip
    build.launch(KernelSpec.of("gemm_few", few=few), args, len(offsets) * -(-many // part))
