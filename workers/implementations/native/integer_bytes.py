"""The launches of a product of many rows of 8-bit integers by ``vpmaddubsw``, on processors with AVX2 and without VNNI."""

from __future__ import annotations

from typing import Final

from ...desc import Arg, item_size
from ...kernels.native.limits import CROSSED_GROUPS
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument
from .convolution_tiles import strips
from .integer_epilogue import NONE, Epilogue
from .integer_reduce import Outputs, add_row_products, add_terms, row_copies, scaled_place
from .nest_builder import NestBuilder

#: The only ISA level: it has the instruction for 256 bits.
_LEVEL: Final = "x86-64-v3"
#: The least rows, and products, that are worth a pass over all weights and two further launches.
_ROWS: Final = 32
_PRODUCTS: Final = 4 << 20
#: Rows of the largest tile: the kernel's own.
_HEIGHT: Final = 5


def refuse_bytes(isa: str, rows: int, depth: int, outputs: int) -> str | None:
    """Return why a product is not faster with ``vpmaddubsw``, or None."""
    if isa != _LEVEL:
        return f"level {isa}; only {_LEVEL} is supported"
    if depth > 4 * CROSSED_GROUPS:
        return f"{depth} inputs; at most {4 * CROSSED_GROUPS} are supported"
    if rows < _ROWS or rows * depth * outputs < _PRODUCTS:
        return f"{rows} rows of {depth} by {outputs}: a pass over weights takes longer than it saves"
    return None


def multiply_bytes(
    build: NestBuilder, src: tuple[LaunchArgument, int], weights: LaunchArgument, shift: int, sizes: tuple[int, int],
    outputs: Outputs, epilogue: Epilogue, exact: bool,
) -> None:  # fmt: skip
    """Add the launches of a product; ``src`` has no sign: where it is, and the bytes from row to row, a multiple of 4.

    ``shift`` was added to it; ``sizes`` are rows and inputs, filled up to groups of 4.
    """
    (source, row), (rows, depth), channels = src, sizes, outputs.channels
    groups, blocks = depth // 4, -(-channels // 16)
    wide = build.book(rows * depth * 2)
    numbers, items = row_copies(rows, 1, row, depth, depth)
    copy = KernelSpec.of("integer_copy", how="pairs", signed=False)
    build.launch(copy, (source, wide, NONE, *(("i", n) for n in numbers)), items)
    squares = add_row_products(build, wide, rows, groups, 2 * depth)
    fits = build.book(blocks * 4)
    build.launch(KernelSpec.of("integer_fits"), (weights, fits, ("i", groups)), blocks)
    terms = add_terms(build, "bytes", weights, shift, groups, outputs, epilogue, exact, "s8")
    cut = len(strips(-(-rows // _HEIGHT), rows * row, blocks * groups * 64, blocks, 1)) - 1
    size, other = item_size(outputs.dst.dtype), epilogue.residual_dtype
    other_size = item_size(other) if other else 0
    arguments = (
        rows, blocks, cut, channels, groups, row, 2 * depth, channels * size, channels * other_size,
    )  # fmt: skip
    args: tuple[LaunchArgument, ...] = (
        source, wide, squares, weights, fits, ("m", (int(Arg.DST), 0)), epilogue.residual, *terms,
        *scaled_place(epilogue, exact), ("t", build.table([0, groups])), *(("i", n) for n in arguments),
        ("f", epilogue.weight), ("f", epilogue.low), ("f", epilogue.high),
    )  # fmt: skip
    kernel = KernelSpec.of(
        "integer_bytes", dtype=outputs.dst.dtype, residual=other, exact=exact, part=channels % 16 != 0
    )
    build.launch(kernel, args, blocks * cut)
