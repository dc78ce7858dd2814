"""Gather of any data types, layouts and attributes."""

from __future__ import annotations

import math

from ...desc import Arg, Gather, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceGather(ReferenceImplementation[Gather]):
    """One element after another."""

    name = "ref:gather"

    def program(self, op: Gather, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables, written = Tables(attr), [(Arg.DST, op.dst)]
        records = tables.tensor(Arg.SRC, op.src), tables.tensor(Arg.SRC_1, op.indices), tables.tensor(Arg.DST, op.dst)
        plain = int(attr.is_plain and not attr.post_ops)
        first = (*records, tables.chain(op.dst), ("i", plain))
        if op.algorithm == "elements":
            return tables.program("gather_elements", (*first, ("i", op.axis)), op.dst.elements, written)
        axis, axes, count, shared = op.axis, 1, op.indices.elements, math.prod(op.src.dims[: op.axis])
        if op.algorithm == "nd":
            axis, axes, shared = op.batch_dims, op.indices.dims[-1], 1
            count = math.prod(op.indices.dims[axis:-1])
        numbers = (axis, axes, count, max(1, shared), math.prod(op.src.dims[axis + axes :]))
        return tables.program("gather", (*first, *(("i", number) for number in numbers)), op.dst.elements, written)
