"""Concat on OpenCL: one strided copy a source."""

from __future__ import annotations

from math import prod

from ...desc import Arg, Concat, PrimitiveAttr, multiple_src
from ...engines.target import Target
from ..program import Program
from .copies import copy_kernel, copy_launch
from .grid import memory
from .implementation import OpenClImplementation


class OpenClConcat(OpenClImplementation[Concat]):
    """Each source is one chunk of every row of dst."""

    name = "opencl:strided"

    def describe(self, op: Concat, attr: PrimitiveAttr, target: Target) -> Program:
        outer, row = prod(op.dst.dims[: op.axis]), prod(op.dst.dims[op.axis :])
        launches = []
        done = 0
        for i, source in enumerate(op.srcs):
            chunk = prod(source.dims[op.axis :])
            if chunk:
                read = (memory(multiple_src(i)), (chunk, 1))
                write = (("m", (int(Arg.DST), done * 4)), (row, 1))
                launches.append(copy_launch((outer, chunk), read, write, target))
            done += chunk
        return Program((copy_kernel(target),), tuple(launches))


IMPLEMENTATIONS = (OpenClConcat(),)
