"""The launch of a 1 x 1 convolution of 8-bit integers by strips of rows, which items of work widen themselves."""

from __future__ import annotations

from typing import Final

from ...desc import Arg, Convolution, item_size
from ...kernels.native.limits import STRIP_BYTES, STRIP_GROUPS, STRIP_INPUTS
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument
from .convolution_window import Window
from .integer_epilogue import Epilogue
from .integer_reduce import Outputs, add_terms, is_crossed_product, scaled_place
from .nest_builder import NestBuilder

#: Bytes of all rows in 16 bits, and of weights, that the second-level cache keeps beside the rest.
_NEAR: Final = 256 << 10
#: Rows of a strip at least: each strip widens all weights again.
_ROWS: Final = 96
#: Strips that threads share evenly, if there are rows enough.
_SHARED: Final = 8


def strip_count(isa: str, op: Convolution) -> int:
    """Return into how many strips of rows a convolution in pairs is cut; 0 if it is better computed otherwise."""
    window, (outputs, inputs) = Window.of(op), op.weights.dims[:2]
    channel = op.src.outer_strides()[1]
    if not window.is_pointwise or not window.is_inside or op.groups > 1 or channel != 1:
        return 0
    if inputs % STRIP_INPUTS or inputs > 4 * STRIP_GROUPS:
        return 0
    rows = op.dst.elements // outputs
    fits = inputs * outputs <= _NEAR < rows * inputs * 2
    count = max(-(-rows * inputs * 2 // (STRIP_BYTES - inputs * 2)), min(_SHARED, rows // _ROWS))
    if not fits or rows < count * _ROWS or not is_crossed_product(isa, rows, inputs // 2, outputs, 1):
        return 0
    return count


def multiply_strips(
    build: NestBuilder, op: Convolution, strips: int, outputs: Outputs, epilogue: Epilogue, exact: bool
) -> None:  # fmt: skip
    """Add the launches of a convolution whose src has channels side by side, cut into so many ``strips``."""
    window, (channels, inputs) = Window.of(op), op.weights.dims[:2]
    weights: LaunchArgument = ("m", (int(Arg.WEIGHTS), 0))
    terms = add_terms(build, "pairs", weights, 0, inputs // 2, outputs, epilogue, exact, "s8")
    rows, blocks = op.dst.elements // channels, -(-channels // 16)
    image, _, *strides = op.src.outer_strides()
    down, across = (0, *strides)[-2] * window.stride[0], strides[-1] * window.stride[1]
    size, other = item_size(outputs.dst.dtype), epilogue.residual_dtype
    other_size = item_size(other) if other else 0
    numbers = (
        rows, strips, blocks, channels, inputs // 4, *window.out, image, down, across, channels * size, channels * other_size,
    )  # fmt: skip
    args: tuple[LaunchArgument, ...] = (
        ("m", (int(Arg.SRC), 0)), epilogue.point(Arg.SRC), weights, ("m", (int(Arg.DST), 0)), epilogue.residual, *terms,
        *scaled_place(epilogue, exact), *(("i", n) for n in numbers), ("f", epilogue.weight), ("f", epilogue.low),
        ("f", epilogue.high),
    )  # fmt: skip
    kernel = KernelSpec.of(
        "integer_crossed_strips", signed=op.src.dtype == "s8", dtype=outputs.dst.dtype, residual=other, exact=exact,
        part=channels % 16 != 0, kind="s8",
    )  # fmt: skip
    build.launch(kernel, args, strips)
