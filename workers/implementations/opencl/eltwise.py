"""Eltwise on OpenCL: one item a vector."""

from __future__ import annotations

from ...desc import Arg, Eltwise, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Program
from .grid import LIGHT, group, integers, launch, memory, vector_width
from .implementation import OpenClImplementation
from .post_ops import chain_arguments, chain_parameter


class OpenClEltwise(OpenClImplementation[Eltwise]):
    """A function of one variable over contiguous floats."""

    name = "opencl:vector"
    takes_post_ops = True

    def describe(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> Program:
        width, local, count = vector_width(target), group(target, LIGHT), op.dst.elements
        kernel = KernelSpec.of(
            "eltwise",
            v=width,
            function=f"eltwise_{op.algorithm}",
            alpha=float(op.alpha),
            beta=float(op.beta),
            post_ops=chain_parameter(attr),
            local=local,
        )
        args = (memory(Arg.SRC), memory(Arg.DST), *integers(count), *chain_arguments(attr))
        return Program((kernel,), (launch(0, -(-count // width), local, *args),))


IMPLEMENTATIONS = (OpenClEltwise(),)
