"""Depthwise deconvolution of row-major planes, for strides whose phases vectors are interleaved for."""

from __future__ import annotations

import math
from typing import Final

from ...desc import Arg, Deconvolution, PrimitiveAttr
from ...engines.target import Target
from ...kernels.native.limits import ROOM
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .chain import chain, chain_source
from .deconvolution_layouts import refuse_depthwise, row_major
from .deconvolution_rows import SPATIAL, Rows

#: Taps that the kernel writes out at most.
_TAPS: Final = 256
#: Strides along the width whose phases vectors are interleaved for. Where registers do not hold all sums, the stack holds the
#: others: with AVX2 and a stride of 8 still in less than a third of the time of a sum for each phase.
_STRIDES: Final = (1, 2, 4, 8)
#: Bytes of a copy that stays in the first-level cache beside what is written.
_COPY: Final = 16 << 10


class NativePlanesDeconvolution:
    """One input channel a group, dense kernels, row-major memories."""

    name = "native:planes"
    engine_kind = "cpu"
    general = False

    def reject(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> str | None:
        op = self.complete(op, attr, target)
        if refused := refuse_depthwise(op, attr):
            return refused
        if op.src.ndims - 2 > SPATIAL:
            return f"{op.src.ndims - 2} spatial dimensions; at most {SPATIAL} are supported"
        if op.strides[-1] not in _STRIDES:
            return f"stride {op.strides[-1]} along the width"
        if not 0 < math.prod(op.weights.dims[2:]) <= _TAPS:
            return f"kernel {op.weights.dims[2:]}; from one tap to {_TAPS} are supported"
        rows = Rows(op)
        if rows.nbytes * (rows.more + 1) > ROOM:
            return f"a row of {op.dst.dims[-1]} elements is longer than the kernel's memory"
        return None

    def complete(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> Deconvolution:
        return row_major(op, op.weights.with_tag(""))

    def program(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        rows = Rows(op)
        positions = -(-rows.dst[0] // rows.stride[0])
        bands = -(-positions // max(1, _COPY // rows.nbytes - rows.more))
        band = -(-positions // bands)
        bands = -(-positions // band)
        channels = op.dst.dims[1]
        sizes = (
            channels, channels // op.groups, *rows.src, *rows.dst, bands, band, rows.nbytes,
            *(pad // stride for pad, stride in zip(rows.padding, rows.stride, strict=True)),
        )  # fmt: skip
        bias: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if op.bias is not None else ("i", 0)
        src, weights, dst = (("m", (int(arg), 0)) for arg in (Arg.SRC, Arg.WEIGHTS, Arg.DST))
        args = (src, weights, bias, dst, chain_source(attr), *(("i", size) for size in sizes))
        kernel = KernelSpec.of(
            "deconvolution_planes", kernel=rows.kernel, stride=rows.stride, lead=rows.lead, chain=chain(attr)
        )
        return Program((kernel,), (Launch(0, args, op.dst.dims[0] * channels * bands),))
