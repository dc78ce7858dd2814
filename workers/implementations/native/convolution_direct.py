"""Convolution by its definition: whatever the blocked implementations decline, up to three spatial dimensions."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Convolution, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .blocks import is_blocked, refuse
from .chain import chain_source
from .convolution_blocked import chosen, refuse_operands
from .convolution_chain import bounds, refuse_bounded


class NativeDirectConvolution:
    """Row-major weights; activations in any plain layout or in blocks of 16 channels."""

    name = "native:direct"
    engine_kind = "cpu"
    general = False
    stays_inside = True

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.src.ndims > 5:
            return f"{op.src.ndims - 2} spatial dimensions; at most 3 are supported"
        op = self.complete(op, attr, target)
        if not op.weights.is_plain:
            return f"weights layout {op.weights.tag}; only row-major is supported"
        return refuse(op.src, op.dst) or refuse_operands(op) or refuse_bounded(attr, op.dst)

    def complete(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Convolution:
        return replace(
            op, src=chosen(op.src, ""), weights=chosen(op.weights, ""), dst=chosen(op.dst, ""),
            bias=op.bias and chosen(op.bias, ""),
        )  # fmt: skip

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        missing = 5 - op.src.ndims

        def three(values: Iterable[int], fill: int) -> tuple[int, ...]:
            return (*(fill,) * missing, *values)

        padded = op.dst.padded_dims[1]
        table = (
            op.groups, op.weights.dims[1], op.dst.dims[1] // op.groups, padded, *three(op.src.dims[2:], 1),
            *three(op.dst.dims[2:], 1), *three(op.weights.dims[2:], 1), *three(op.strides, 1),
            *three((d + 1 for d in op.dilations), 1), *three(op.padding_l, 0), *_walk(op.src), *_walk(op.dst),
        )  # fmt: skip
        low, bound = bounds(attr)
        bias: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if op.bias else ("i", 0)
        args = (
            ("m", (int(Arg.SRC), 0)), ("m", (int(Arg.WEIGHTS), 0)), bias, ("m", (int(Arg.DST), 0)), chain_source(attr),
            ("t", 0), ("f", low), ("f", bound),
        )  # fmt: skip
        _, out_depth, out_height = (op.dst.dims[0], *three(op.dst.dims[2:], 1)[:2])
        launch = Launch(0, args, op.dst.dims[0] * padded * out_depth * out_height)
        return Program((KernelSpec.of("conv_direct"),), (launch,), struct.pack(f"<{len(table)}q", *table))


def _walk(md: MemoryDesc) -> tuple[int, ...]:
    """Return lanes of a channel block and the strides in bytes of image, block, depth, row and column."""
    image, block, *spatial = (4 * stride for stride in md.outer_strides())
    return (16 if is_blocked(md) else 1, image, block, *(0,) * (5 - md.ndims), *spatial)
