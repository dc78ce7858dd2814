"""Depthwise deconvolution by long strides along the width, whose vectors are neighbouring taps of weights."""

from __future__ import annotations

import itertools
import math
from typing import Final

from ...desc import Arg, Deconvolution, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .chain import chain, chain_source
from .deconvolution_grid import in_three
from .deconvolution_layouts import refuse_depthwise, row_major

#: The shortest stride along the width: a vector has 16 elements, and each stride has vectors of its own.
_LEAST: Final = 16


class NativeWideDeconvolution:
    """One input channel a group, dense kernels, row-major memories."""

    name = "native:wide"
    engine_kind = "cpu"
    general = False

    def reject(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> str | None:
        op = self.complete(op, attr, target)
        if refused := refuse_depthwise(op, attr):
            return refused
        if op.strides[-1] < _LEAST:
            return f"stride {op.strides[-1]} along the width; at least {_LEAST} is supported"
        return None

    def complete(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> Deconvolution:
        return row_major(op, op.weights.with_tag(""))

    def program(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> Program:
        channels = op.dst.dims[1]
        sizes = (channels, channels // op.groups, *itertools.chain(*in_three(op)))
        bias: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if op.bias is not None else ("i", 0)
        src, weights, dst = (("m", (int(arg), 0)) for arg in (Arg.SRC, Arg.WEIGHTS, Arg.DST))
        args = (src, weights, bias, dst, chain_source(attr), *(("i", size) for size in sizes))
        kernel = KernelSpec.of("deconvolution_wide", chain=chain(attr))
        rows = math.prod(op.dst.dims[:-1]) if op.dst.elements else 0
        return Program((kernel,), (Launch(0, args, rows),)) if rows else Program((), ())
