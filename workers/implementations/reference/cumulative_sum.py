"""Cumulative sum of any data types, layouts and attributes."""

from __future__ import annotations

import math

from ...desc import Arg, CumulativeSum, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceCumulativeSum(ReferenceImplementation[CumulativeSum]):
    """One row along the axis after another."""

    name = "ref:cumulative_sum"

    def program(self, op: CumulativeSum, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        size, inner = op.dst.dims[op.axis], math.prod(op.dst.dims[op.axis + 1 :])
        numbers = size, inner, int(op.exclusive), int(op.reverse)
        records = tables.tensor(Arg.SRC, op.src), tables.tensor(Arg.DST, op.dst), tables.chain(op.dst)
        args = (*records, *(("i", number) for number in numbers))
        return tables.program("cumulative_sum", args, op.dst.elements // size, [(Arg.DST, op.dst)])
