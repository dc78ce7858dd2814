"""Sum on OpenCL: a chain of additions into dst, the post-ops on the last; a single source is copied."""

from __future__ import annotations

from ...desc import Arg, PrimitiveAttr, Sum, multiple_src
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Program
from .binary import binary_kernel, binary_launch
from .grid import LIGHT, group, integers, launch, memory, vector_width
from .implementation import OpenClImplementation
from .post_ops import chain_arguments, chain_parameter


class OpenClSum(OpenClImplementation[Sum]):
    """The sum of any number of tensors of one shape."""

    name = "opencl:chain"
    takes_post_ops = True

    def describe(self, op: Sum, attr: PrimitiveAttr, target: Target) -> Program:
        if len(op.srcs) == 1:
            return _copy(op, attr, target)
        plain = PrimitiveAttr()
        kernels = [binary_kernel("add", a, target) for a in ((plain, attr) if len(op.srcs) > 2 else (attr,))]
        launches = []
        for i in range(1, len(op.srcs)):
            last = i == len(op.srcs) - 1
            left = multiple_src(0) if i == 1 else Arg.DST
            launches.append(
                binary_launch(
                    len(kernels) - 1 if last else 0,
                    (op.dst, op.dst, op.dst),
                    (memory(left), memory(multiple_src(i)), memory(Arg.DST)),
                    attr if last else plain,
                    target,
                )
            )
        return Program(tuple(kernels), tuple(launches))


def _copy(op: Sum, attr: PrimitiveAttr, target: Target) -> Program:
    width, local, count = vector_width(target), group(target, LIGHT), op.dst.elements
    kernel = KernelSpec.of(
        "eltwise", v=width, function="eltwise_linear", alpha=1.0, beta=0.0, post_ops=chain_parameter(attr), local=local
    )
    args = (memory(multiple_src(0)), memory(Arg.DST), *integers(count), *chain_arguments(attr))
    return Program((kernel,), (launch(0, -(-count // width), local, *args),))


IMPLEMENTATIONS = (OpenClSum(),)
