"""Softmax and its logarithm along any axis, forward and backward."""

from __future__ import annotations

import math

from ...desc import Arg, PrimitiveAttr, Softmax
from ...engines.target import Target
from ..layouts import complete_layouts
from ..program import LaunchArgument, Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceSoftmax(ReferenceImplementation[Softmax]):
    """One row along the axis after another."""

    name = "ref:softmax"

    def complete(self, op: Softmax, attr: PrimitiveAttr, target: Target) -> Softmax:
        return complete_layouts(op, ("src", "dst", "diff_dst", "diff_src"))

    def program(self, op: Softmax, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        size, inner = op.dst.dims[op.axis], math.prod(op.dst.dims[op.axis + 1 :])
        numbers: tuple[LaunchArgument, ...] = (("i", size), ("i", inner), ("i", int(op.algorithm == "log")))
        rows = op.dst.elements // size
        dst = tables.tensor(Arg.DST, op.dst)
        if op.diff_src is None or op.diff_dst is None:
            args = (tables.tensor(Arg.SRC, op.src), dst, tables.chain(op.dst), *numbers)
            return tables.program("softmax", args, rows, [(Arg.DST, op.dst)])
        gradients = tables.tensor(Arg.DIFF_DST, op.diff_dst), tables.tensor(Arg.DIFF_SRC, op.diff_src)
        args = (dst, *gradients, tables.chain(op.diff_src), *numbers)
        return tables.program("softmax_backward", args, rows, [(Arg.DIFF_SRC, op.diff_src)])
