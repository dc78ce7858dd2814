"""Convolution of row-major planes by windows of one element, which needs no reorder into blocks of channels and back."""

from __future__ import annotations

import math

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Convolution, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .blocks import refuse
from .chain import chain_source
from .convolution_blocked import chosen, ints, refuse_operands
from .convolution_chain import bounds, refuse_bounded
from .convolution_window import Window

#: Output channels of a tile, of which registers hold the sums: fewer on the weakest level.
_ROWS, _FEW_ROWS = 4, 2
#: Bytes of the source's piece of an item, which stay in the first-level cache, and columns of a piece.
_SOURCE, _LEAST, _MOST = 16 << 10, 64, 1024


class NativePointsConvolution:
    """1 to 3 spatial dimensions, any groups; src, weights and dst are row-major; no padding, columns that move by one or two."""

    name = "native:points"
    engine_kind = "cpu"
    general = False
    stays_inside = True

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.src.ndims not in (3, 4, 5) or set(op.weights.dims[2:]) != {1}:
            return "windows of more than one element, or not 1 to 3 spatial dimensions"
        if any((*op.padding_l, *op.padding_r)) or op.strides[-1] > 2:
            return "padding, or columns that move by more than two"
        # Left open, layouts are blocks of channels, as the layers around it have them.
        for md in (op.src, op.dst):
            if not md.is_plain:
                return f"layout {md.tag}; only row-major is supported"
        op = self.complete(op, attr, target)
        if not op.weights.is_plain:
            return f"weights layout {op.weights.tag}; only row-major is supported"
        return refuse(op.src, op.dst) or refuse_operands(op) or refuse_bounded(attr, op.dst)

    def complete(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Convolution:
        return replace(op, weights=chosen(op.weights, ""), bias=op.bias and chosen(op.bias, ""))

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
        rows = min(_FEW_ROWS if target.isa == "x86-64-v2" else _ROWS, outputs)
        kernel = KernelSpec.of("conv_points", rows=rows, stride=op.strides[-1])
        items = op.dst.dims[0] * op.groups * lines * math.ceil(columns / piece)
        return Program((kernel,), (Launch(0, args, items),))
