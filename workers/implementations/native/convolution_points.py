"""Convolution of row-major planes by windows of one element, which needs no reorder into blocks of channels and back."""

from __future__ import annotations

import math
from typing import Final

from ...desc import Arg, Convolution, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .chain import chain_source
from .convolution_blocked import ints
from .convolution_chain import bounds
from .convolution_row_major import RowMajorConvolution
from .convolution_tiles import even
from .convolution_window import Window

#: ISA level -> output channels of a tile, of which registers hold the sums: with AVX-512, they have four vectors each.
_ROWS: Final = {"x86-64-v4": 4, "x86-64-v3": 6, "x86-64-v2": 2}
_FEWEST: Final = 4
#: Bytes of the source's piece of an item, which stay in the first-level cache, and columns of a piece.
_SOURCE, _LEAST, _MOST = 16 << 10, 64, 1024


class NativePointsConvolution(RowMajorConvolution):
    """1 to 3 spatial dimensions, any groups; src, weights and dst are row-major; no padding, columns that move by one or two."""

    name = "native:points"

    def reject_window(self, op: Convolution) -> str | None:
        if op.src.ndims not in (3, 4, 5) or set(op.weights.dims[2:]) != {1}:
            return "windows of more than one element, or not 1 to 3 spatial dimensions"
        if any((*op.padding_l, *op.padding_r)) or op.strides[-1] > 2:
            return "padding, or columns that move by more than two"
        is_single = op.groups == op.dst.dims[1] and op.weights.dims[1] == 1
        if is_single and set(op.strides) != {1} and math.prod(op.dst.dims[2:-1]) > 1:
            return "rows of their own for single products, which planes have in bands"
        return None

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        window = Window.of(op)
        inputs, outputs = op.weights.dims[1], op.dst.dims[1] // op.groups
        (height, columns), lines = window.out, window.depth.out * window.out[0]
        width, row = window.width, 4 * window.width
        plane = row * window.height * window.depth.size
        slab, down = row * window.height * window.depth.stride, row * window.stride[0]
        if set(op.strides) == {1}:
            # All rows are one.
            width = columns = lines * columns
            height = lines = 1
        piece = max(_LEAST, min(_MOST, _SOURCE // (4 * inputs * op.strides[-1]) // 64 * 64))
        low, bound = bounds(attr)
        bias: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if op.bias else ("i", 0)
        sizes = (op.groups, inputs, outputs, plane, slab, down, width, height, lines, columns, piece)
        args = (
            ("m", (int(Arg.SRC), 0)), ("m", (int(Arg.WEIGHTS), 0)), bias, ("m", (int(Arg.DST), 0)), chain_source(attr),
            *ints(sizes), ("f", low), ("f", bound),
        )  # fmt: skip
        rows = min(_ROWS.get(target.isa, _FEWEST), outputs)
        if target.isa == "x86-64-v3":
            # A last tile of fewer outputs would compute some of them once more.
            rows = even(outputs, rows)[0]
        kernel = KernelSpec.of("conv_points", rows=rows, stride=op.strides[-1])
        items = op.dst.dims[0] * op.groups * lines * math.ceil(columns / piece)
        return Program((kernel,), (Launch(0, args, items),))
