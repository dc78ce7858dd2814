"""3 x 3 convolution of 8-bit integers by Winograd's products in 16 bits, exact for all weights."""

from __future__ import annotations

from typing import Final

from ...desc import Arg, Convolution, PrimitiveAttr
from ...engines.target import Target
from ...kernels.native.limits import WINOGRAD_PAIRS, WINOGRAD_WINDOWS
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .convolution_integer import NativeIntegerConvolution
from .convolution_window import Window
from .integer_epilogue import Epilogue, is_exact
from .integer_reduce import Outputs, add_terms, scaled_place
from .nest_builder import NestBuilder

#: With fewer inputs or outputs, transforms take longer than the multiplications that they save.
_LEAST: Final = 16
#: With fewer windows of 2 x 2 outputs, the transform of weights does.
_LEAST_WINDOWS: Final = 8
#: Numbers are padded to whole registers of so many.
_LANES: Final = 16


class NativeIntegerWinograd(NativeIntegerConvolution):
    """What `NativeIntegerConvolution` has in pairs, of a 3 x 3 kernel with stride 1, one group, and 16 to 512 inputs."""

    def __init__(self) -> None:
        super().__init__("pairs")
        self.name = "native:integer_winograd"

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        if target.isa != "x86-64-v3":
            return "other registers than those of 256 bits"
        if op.src.ndims != 4 or op.weights.dims[2:] != (3, 3) or {*op.strides} != {1} or any(op.dilations):
            return "only dense kernels of 3 x 3 with stride 1 are supported"
        inputs, outputs = op.src.dims[1], op.dst.dims[1]
        if op.groups != 1 or not _LEAST <= inputs <= 2 * WINOGRAD_PAIRS or outputs < _LEAST:
            return "groups, or too few or too many channels"
        rows, columns = _windows(op)
        if rows * columns < _LEAST_WINDOWS or 1 in op.dst.dims[2:]:
            return "too few outputs of a channel"
        return super().reject(op, attr, target)

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        epilogue = Epilogue.of(attr, op.dst)
        build = NestBuilder(epilogue.tables)
        images, inputs = op.src.dims[:2]
        padded = -(-inputs // _LANES) * _LANES
        rows, columns = _windows(op)
        height, width = 2 * rows + 2, 2 * columns + 2
        window = Window.of(op)
        signed = op.src.dtype == "s8"
        sizes = (
            window.height, window.width, *op.src.outer_strides(), height, width, 1, 1, *window.pad, 1, inputs, padded,
        )  # fmt: skip
        copied = build.book(images * height * width * padded * 2)
        source = (("m", (int(Arg.SRC), 0)), copied, epilogue.point(Arg.SRC), *_ints(*sizes))
        build.launch(KernelSpec.of("integer_copy", how="pairs", signed=signed), source, images * height)
        values = build.book(images * 16 * rows * columns * padded * 2)
        sizes = (padded, rows, columns, height, width)
        build.launch(KernelSpec.of("winograd_input"), (copied, values, *_ints(*sizes)), images * rows)
        exact = is_exact(attr, op.bias, op.dst)
        weights: LaunchArgument = ("m", (int(Arg.WEIGHTS), 0))
        pairs = -(-inputs // 2)
        channels, dtype, other = op.dst.dims[1], op.dst.dtype, epilogue.residual_dtype
        outputs = Outputs(images, 1, channels, op.dst, op.bias)
        terms = add_terms(build, "pairs", weights, 0, 9 * pairs, outputs, epilogue, exact, "s8")
        strips = -(-rows * columns // WINOGRAD_WINDOWS)
        args: tuple[LaunchArgument, ...] = (
            values, weights, ("m", (int(Arg.DST), 0)), epilogue.residual, *terms, *scaled_place(epilogue, exact),
            *_ints(strips, rows * columns, columns, *window.out, channels, pairs, padded * 2),
            ("f", epilogue.weight), ("f", epilogue.low), ("f", epilogue.high),
        )  # fmt: skip
        kernel = KernelSpec.of("integer_winograd", dtype=dtype, residual=other, exact=exact, part=channels % 16 != 0)
        build.launch(kernel, args, images * strips * -(-channels // 16))
        return build.program()


def _windows(op: Convolution) -> tuple[int, int]:
    """Return the rows and columns of windows of 2 x 2 outputs."""
    rows, columns = (-(-size // 2) for size in op.dst.dims[2:])
    return rows, columns


def _ints(*values: int) -> tuple[LaunchArgument, ...]:
    return tuple(("i", n) for n in values)
