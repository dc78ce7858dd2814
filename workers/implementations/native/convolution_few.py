"""Convolution of few input channels, as the first of an image network: pixels with their channels side by side."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Convolution, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Program
from .blocks import blocked_tag, refuse
from .convolution_blocked import Walk, chosen, in_place, ints, reduce, refuse_operands
from .convolution_chain import refuse_bounded
from .convolution_window import Window
from .nest_builder import NestBuilder

#: With more input channels a padded block of 16 wastes less than it gains.
_MOST = 8


class NativeFewChannelsConvolution:
    """1 to 3 spatial dimensions, one group, at most 8 input channels in any plain layout; blocked destination."""

    name = "native:few_channels"
    engine_kind = "cpu"
    general = False
    stays_inside = True

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.src.ndims not in (3, 4, 5) or op.groups != 1 or op.src.dims[1] > _MOST:
            return f"more than {_MOST} input channels, groups, or more than 3 spatial dimensions"
        op = self.complete(op, attr, target)
        if op.src.layout.blocks or op.dst.tag != blocked_tag(op.dst.ndims):
            return f"layouts {op.src.tag} and {op.dst.tag}; only plain and blocks of 16 channels are supported"
        if op.weights.tag != _weights_tag(op.weights.ndims):
            return f"weights layout {op.weights.tag}; only {_weights_tag(op.weights.ndims)} is supported"
        return refuse(op.src, op.dst) or refuse_operands(op) or refuse_bounded(attr, op.dst)

    def complete(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Convolution:
        weights, dst = chosen(op.weights, _weights_tag(op.weights.ndims)), chosen(op.dst, blocked_tag(op.dst.ndims))
        return replace(op, src=chosen(op.src, ""), weights=weights, dst=dst, bias=op.bias and chosen(op.bias, ""))

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        window = Window.of(op)
        channels = op.src.dims[1]
        rows, columns = ((o - 1) * s + r + 1 for o, s, r in zip(window.out, window.stride, window.reach, strict=True))
        strides = op.src.outer_strides()
        slabs = (window.depth.out - 1) * window.depth.stride + window.depth.reach + 1
        walked = (4 * s for s in (*strides[:2], *(0,) * (5 - op.src.ndims), *strides[2:]))
        sizes = (
            channels, window.depth.size, window.height, window.width, *walked, slabs, rows, columns, window.depth.pad,
            *window.pad,
        )  # fmt: skip
        images = op.src.dims[0]
        build = NestBuilder()
        copied = build.book(images * slabs * rows * columns * channels * 4)
        copy = (("m", (int(Arg.SRC), 0)), copied, *ints(sizes))
        build.launch(KernelSpec.of("conv_interleave"), copy, images * slabs * rows)
        pixel = channels * 4
        line = columns * pixel
        # Neighbouring taps of a dense kernel read neighbouring pixels: a row of the kernel is one run of lanes.
        dense = window.dilation[1] == 1
        lanes = window.kernel[1] * channels if dense else channels
        steps = [
            (
                (kd * window.depth.dilation * rows + kh * window.dilation[0]) * line + kw * window.dilation[1] * pixel,
                lanes,
                0,
            )
            for kd in range(window.depth.kernel)
            for kh in range(window.kernel[0])
            for kw in range(1 if dense else window.kernel[1])
        ]
        image = slabs * rows * line
        walk = Walk(window.depth.stride * rows * line, window.stride[0] * line, window.stride[1] * pixel, image, image)
        operands = in_place(op, attr, copied, len(steps) * lanes * 64)
        reduce(build, op, attr, target, (window.depth.out, *window.out), steps, walk, operands)
        return build.program()


def _weights_tag(ndims: int) -> str:
    """Return the tag with 16 outputs side by side, then input channels: ``Acdb16a`` for 4."""
    return f"A{'cdefghijkl'[: ndims - 2]}b16a"
