"""Sum: up to four sources a launch, in any layout that all tensors share."""

from __future__ import annotations

from ...desc import WRAPPING, Arg, PrimitiveAttr, Sum, multiple_src
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..layouts import complete_sources
from ..program import Launch, LaunchArgument, Program
from .blocks import EVERY_TYPE, refuse, refuse_different, span
from .chain import chain, chain_source, refuse_chain
from .implementation import NativeImplementation

#: Sources that one launch of the kernel adds.
_MOST = 4


class NativeSum(NativeImplementation[Sum]):
    """Runs of elements, 16 at a time; more than four sources are added to dst by further launches."""

    name = "native:sum"
    stays_inside = True

    def reject(self, op: Sum, attr: PrimitiveAttr, target: Target) -> str | None:
        op = self.complete(op, attr, target)
        every = (*op.srcs, op.dst)
        if len(op.srcs) > _MOST and op.dst.dtype not in ("f32", "f64", *WRAPPING):
            return f"more than {_MOST} sources of {op.dst.dtype}, whose sum is rounded once"
        return refuse(*every, dtypes=EVERY_TYPE) or refuse_different(*every) or refuse_chain(attr, op.dst)

    def complete(self, op: Sum, attr: PrimitiveAttr, target: Target) -> Sum:
        return complete_sources(op)

    def program(self, op: Sum, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        left: list[LaunchArgument] = [("m", (multiple_src(i), 0)) for i in range(len(op.srcs))]
        groups = [left[:_MOST]]
        for first in range(_MOST, len(left), _MOST - 1):
            groups.append([("m", (Arg.DST, 0)), *left[first : first + _MOST - 1]])
        runs = span(op.dst)
        kernels: list[KernelSpec] = []
        launches = []
        for group in groups:
            last = group is groups[-1]
            spec = KernelSpec.of("sum", count=len(group), dtype=op.dst.dtype, chain=chain(attr) if last else ())
            if spec not in kernels:
                kernels.append(spec)
            unused: list[LaunchArgument] = [("i", 0)] * (_MOST - len(group))
            other: LaunchArgument = chain_source(attr) if last else ("i", 0)
            args = (*group, *unused, ("m", (Arg.DST, 0)), other, *runs.arguments())
            launches.append(Launch(kernels.index(spec), args, runs.work))
        return Program(tuple(kernels), tuple(launches))


IMPLEMENTATIONS = (NativeSum(),)
