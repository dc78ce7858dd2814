"""Depthwise convolution: as many groups as channels, on blocks of 16 channels."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Convolution, PrimitiveAttr
from ...engines.target import Target
from ...kernels.native.row_pieces import TAPS, are_written_out
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .blocks import blocked_tag, refuse
from .chain import chain_source
from .convolution_blocked import chosen, ints, refuse_operands
from .convolution_chain import bounds, refuse_bounded
from .convolution_window import Window

#: ISA levels whose registers hold the sums of a short row of outputs and the weights of a row of the window.
_WITH_ROWS: Final = ("x86-64-v4",)
#: Columns of a short row.
_SHORT: Final = 14


class NativeDepthwiseConvolution:
    """1 to 3 spatial dimensions, one input and one output channel a group."""

    name = "native:depthwise"
    engine_kind = "cpu"
    general = False
    stays_inside = True

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.src.ndims not in (3, 4, 5) or not op.groups == op.src.dims[1] == op.dst.dims[1] > 1:
            return "not one input and one output channel a group in 1 to 3 spatial dimensions"
        op = self.complete(op, attr, target)
        tag, weights = blocked_tag(op.src.ndims), _weights_tag(op.weights.ndims)
        if (op.src.tag, op.dst.tag, op.weights.tag) != (tag, tag, weights):
            return (
                f"layouts {op.src.tag}, {op.weights.tag}, {op.dst.tag}; only {tag} and weights {weights} are supported"
            )
        return refuse(op.src, op.dst) or refuse_operands(op) or refuse_bounded(attr, op.dst)

    def complete(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Convolution:
        tag = blocked_tag(op.src.ndims)
        weights = chosen(op.weights, _weights_tag(op.weights.ndims))
        return replace(
            op, src=chosen(op.src, tag), weights=weights, dst=chosen(op.dst, tag), bias=op.bias and chosen(op.bias, "")
        )

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        window = Window.of(op)
        blocks = op.dst.padded_dims[1] // 16
        low, bound = bounds(attr)
        sizes = (
            op.dst.dims[1], blocks, window.height, window.width, *window.out, *window.kernel, *window.stride,
            *window.dilation, *window.pad, *window.depth.sizes,
        )  # fmt: skip
        bias: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if op.bias else ("i", 0)
        args = (
            ("m", (int(Arg.SRC), 0)), ("m", (int(Arg.WEIGHTS), 0)), bias, ("m", (int(Arg.DST), 0)), chain_source(attr),
            *ints(sizes), ("f", low), ("f", bound),
        )  # fmt: skip
        ragged = op.dst.dims[1] % 16 != 0
        kernel = KernelSpec.of("conv_depthwise", ragged=ragged)
        if window.kernel[1] <= TAPS:
            if window.depth.kernel == 1 and are_written_out(target.isa, *window.row):
                kernel = KernelSpec.of("conv_depthwise", ragged=ragged, row=window.row, flat=True)
            elif target.isa in _WITH_ROWS and window.out[1] <= _SHORT:
                kernel = KernelSpec.of("conv_depthwise", ragged=ragged, row=window.row)
        return Program((kernel,), (Launch(0, args, op.dst.dims[0] * blocks * window.depth.out * window.out[0]),))


def _weights_tag(ndims: int) -> str:
    """Return the tag with the kernels of 16 channels side by side: ``Abcd16a`` for 4."""
    return f"A{'bcdefghijkl'[: ndims - 1]}16a"
