"""3 x 3 convolution of 8-bit integers by Winograd's products in 16 bits, exact for all weights."""

from __future__ import annotations

import math
from typing import Final

from ...desc import Arg, Convolution, PrimitiveAttr
from ...engines.target import Target
from ...kernels.native.limits import WINOGRAD_PAIRS, WINOGRAD_WINDOWS
from ...kernels.native.winograd_scheme import FACTORS, SCHEMES
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .convolution_integer import NativeIntegerConvolution
from .convolution_tiles import even
from .convolution_window import Window
from .integer_epilogue import NONE, Epilogue, is_exact
from .integer_reduce import Outputs, add_row_products, add_terms, scaled_place
from .nest_builder import NestBuilder

#: With fewer inputs or outputs, transforms take longer than the multiplications that they save.
_LEAST: Final = 16
#: With fewer positions, the transform of weights does.
_LEAST_POSITIONS: Final = 29
#: With fewer windows, the products of weights that half the multiplications need do.
_HALVED: Final = 16
#: Numbers are padded to whole registers of so many.
_LANES: Final = 16


class NativeIntegerWinograd(NativeIntegerConvolution):
    """What `NativeIntegerConvolution` has in pairs, of a 3 x 3 kernel with stride 1 or 2, one group, and 16 to 512 inputs."""

    def __init__(self) -> None:
        super().__init__("pairs")
        self.name = "native:integer_winograd"

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        if target.isa != "x86-64-v3":
            return "other registers than those of 256 bits"
        if op.src.ndims != 4 or op.weights.dims[2:] != (3, 3) or any(op.dilations) or len({*op.strides}) > 1:
            return "only dense kernels of 3 x 3 are supported"
        if op.strides[0] not in SCHEMES:
            return f"strides {op.strides}"
        inputs, outputs = op.src.dims[1], op.dst.dims[1]
        if op.groups != 1 or not _LEAST <= inputs <= 2 * WINOGRAD_PAIRS or outputs < _LEAST:
            return "groups, or too few or too many channels"
        if math.prod(op.dst.dims[2:]) < _LEAST_POSITIONS or 1 in op.dst.dims[2:]:
            return "too few outputs of a channel"
        return super().reject(op, attr, target)

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        epilogue = Epilogue.of(attr, op.dst)
        build = NestBuilder(epilogue.tables)
        images, inputs = op.src.dims[:2]
        padded = -(-inputs // _LANES) * _LANES
        window, stride = Window.of(op), op.strides[0]
        scheme = SCHEMES[stride]
        height, width = ((size - 1) * stride + 3 for size in window.out)
        (large_rows, small_rows), (large_columns, small_columns) = map(scheme.cut, window.out)
        rows, columns = large_rows + small_rows, large_columns + small_columns
        signed = op.src.dtype == "s8"
        sizes = (
            window.height, window.width, *op.src.outer_strides(), height, width, 1, 1, *window.pad, 1, inputs, padded,
        )  # fmt: skip
        copied = build.book(images * height * width * padded * 2)
        source = (("m", (int(Arg.SRC), 0)), copied, epilogue.point(Arg.SRC), *_ints(*sizes))
        build.launch(KernelSpec.of("integer_copy", how="pairs", signed=signed), source, images * height)
        strips = _strips((large_rows, rows), (large_columns, columns))
        table: LaunchArgument = ("t", build.table([number for strip in strips for number in strip]))
        values = build.book(images * FACTORS**2 * rows * columns * padded * 2)
        most = max(strip[1] for strip in strips)
        sizes = (padded, len(strips), most, rows * columns, large_rows, large_columns, height, width)
        kernel = KernelSpec.of("winograd_input", stride=stride)
        build.launch(kernel, (copied, values, table, *_ints(*sizes)), images * len(strips) * most)
        halves = rows * columns >= _HALVED
        squares = NONE
        if halves:
            squares = add_row_products(build, values, images * FACTORS**2 * rows * columns, padded // 4, padded * 2)
        exact = is_exact(attr, op.bias, op.dst)
        weights: LaunchArgument = ("m", (int(Arg.WEIGHTS), 0))
        pairs = -(-inputs // 2)
        channels, dtype, other = op.dst.dims[1], op.dst.dtype, epilogue.residual_dtype
        outputs = Outputs(images, 1, channels, op.dst, op.bias)
        terms = add_terms(build, "pairs", weights, 0, 9 * pairs, outputs, epilogue, exact, "s8")
        args: tuple[LaunchArgument, ...] = (
            values, squares, table, weights, ("m", (int(Arg.DST), 0)), epilogue.residual, *terms, *scaled_place(epilogue, exact),
            *_ints(len(strips), *sizes[3:6], *window.out, channels, pairs, padded * 2),
            ("f", epilogue.weight), ("f", epilogue.low), ("f", epilogue.high),
        )  # fmt: skip
        kernel = KernelSpec.of(
            "integer_winograd",
            stride=stride,
            halves=halves,
            dtype=dtype,
            residual=other,
            exact=exact,
            part=channels % 16 != 0,
        )
        build.launch(kernel, args, images * len(strips) * -(-channels // 16))
        return build.program()


def _strips(rows: tuple[int, int], columns: tuple[int, int]) -> list[tuple[int, ...]]:
    """Return the strips of windows as `winograd_input` reads them; of rows and columns, how many are large, and all."""
    found: list[tuple[int, ...]] = []
    before, left = 0, 0
    for across in even(columns[1], WINOGRAD_WINDOWS):
        top = 0
        for down in even(rows[1], WINOGRAD_WINDOWS // across):
            tall, wide = (
                min(max(large - first, 0), size)
                for large, first, size in ((rows[0], top, down), (columns[0], left, across))
            )
            found.append((top, down, tall, left, across, wide, before))
            before, top = before + down * across, top + down
        left += across
    return found


def _ints(*values: int) -> tuple[LaunchArgument, ...]:
    return tuple(("i", n) for n in values)
