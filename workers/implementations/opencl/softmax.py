"""Softmax on OpenCL: an item is a row, or a vector of neighbouring rows."""

from __future__ import annotations

from math import prod

from ...desc import Arg, PrimitiveAttr, Softmax
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Program
from .grid import HEAVY, group, integers, launch, memory, vector_width
from .implementation import OpenClImplementation


class OpenClSoftmax(OpenClImplementation[Softmax]):
    """Three passes over a row: the largest, the sum of exponentials, the result."""

    name = "opencl:rows"

    def describe(self, op: Softmax, attr: PrimitiveAttr, target: Target) -> Program:
        width, local = vector_width(target), group(target, HEAVY)
        outer, axis, inner = prod(op.dst.dims[: op.axis]), op.dst.dims[op.axis], prod(op.dst.dims[op.axis + 1 :])
        kernel = KernelSpec.of("softmax", v=width, log=op.algorithm == "log", post_ops=(), local=local)
        items = outer * -(-inner // width)
        run = launch(0, items, local, memory(Arg.SRC), memory(Arg.DST), *integers(outer, axis, inner))
        return Program((kernel,), (run,))


IMPLEMENTATIONS = (OpenClSoftmax(),)
