"""Eltwise: one implementation for every algorithm and every layout, memory read and written once."""

from __future__ import annotations

from ...desc import Arg, Eltwise, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, Program
from .blocks import refuse, refuse_different, span
from .chain import chain, chain_source, refuse_chain
from .implementation import NativeImplementation


class NativeEltwise(NativeImplementation[Eltwise]):
    """Runs of elements, 16 at a time; src and dst in the same layout."""

    name = "native:eltwise"

    def reject(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.algorithm == "softplus" and op.alpha == 0.0:
            return "softplus divides by alpha, which is 0"
        op = self.complete(op, attr, target)
        return refuse(op.src, op.dst) or refuse_different(op.src, op.dst) or refuse_chain(attr, op.dst)

    def program(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        runs = span(op.dst)
        kernel = KernelSpec.of("eltwise", algorithm=op.algorithm, chain=chain(attr))
        args = (
            ("m", (Arg.SRC, 0)), ("m", (Arg.DST, 0)), chain_source(attr), *runs.arguments(),
            ("f", float(op.alpha)), ("f", float(op.beta)),
        )  # fmt: skip
        return Program((kernel,), (Launch(0, args, runs.work),))


IMPLEMENTATIONS = (NativeEltwise(),)
