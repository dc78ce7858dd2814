"""Depthwise deconvolution of row-major planes, for strides whose phases registers hold."""

from __future__ import annotations

import math
from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Deconvolution, PrimitiveAttr
from ...engines.target import Target
from ...kernels.native.deconvolution_planes import ROOM
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .blocks import refuse
from .chain import chain, chain_source, refuse_chain
from .deconvolution_rows import SPATIAL, Rows

#: Taps that the kernel writes out at most.
_TAPS: Final = 256
#: ISA level -> strides along the width: registers hold the sums of all phases, or most of them.
_STRIDES: Final = {"x86-64-v2": (1, 2), "x86-64-v3": (1, 2, 4), "x86-64-v4": (1, 2, 4, 8)}
#: Bytes of a copy that stays in the first-level cache beside what is written.
_COPY: Final = 16 << 10


class NativePlanesDeconvolution:
    """One input channel a group, dense kernels, row-major memories."""

    name = "native:planes"
    engine_kind = "cpu"
    general = False

    def reject(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> str | None:
        op = self.complete(op, attr, target)
        if op.weights.dims[1] != 1 or any(op.dilations):
            return f"{op.weights.dims[1]} input channels a group, dilations {op.dilations}; only one and dense are supported"
        if op.src.ndims - 2 > SPATIAL:
            return f"{op.src.ndims - 2} spatial dimensions; at most {SPATIAL} are supported"
        if op.strides[-1] not in _STRIDES[target.isa]:
            return f"stride {op.strides[-1]} along the width"
        if not 0 < math.prod(op.weights.dims[2:]) <= _TAPS:
            return f"kernel {op.weights.dims[2:]}; from one tap to {_TAPS} are supported"
        memories = (op.src, op.weights, op.dst, *((op.bias,) if op.bias is not None else ()))
        if not all(md.is_plain for md in memories):
            return "src, weights, bias and dst must be row-major"
        if refused := refuse(*memories) or refuse_chain(attr, op.dst):
            return refused
        rows = Rows(op)
        if rows.nbytes * (rows.more + 1) > ROOM:
            return f"a row of {op.dst.dims[-1]} elements is longer than the kernel's memory"
        return None

    def complete(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> Deconvolution:
        src, weights, dst = (md.with_tag("") if md.is_any else md for md in (op.src, op.weights, op.dst))
        bias = op.bias.with_tag("") if op.bias is not None and op.bias.is_any else op.bias
        return replace(op, src=src, weights=weights, bias=bias, dst=dst)

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
