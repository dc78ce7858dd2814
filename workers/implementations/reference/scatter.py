"""Scatter of any data types, layouts and attributes."""

from __future__ import annotations

import math

from ...desc import Arg, PrimitiveAttr, Scatter
from ...desc.operations.scatter import SCATTER_REDUCTIONS
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceScatter(ReferenceImplementation[Scatter]):
    """One element of the destination after another: each finds its own updates."""

    name = "ref:scatter"

    def program(self, op: Scatter, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables, written = Tables(attr), [(Arg.DST, op.dst)]
        operands = ((Arg.SRC, op.src), (Arg.SRC_1, op.indices), (Arg.SRC_2, op.updates), (Arg.DST, op.dst))
        records = [tables.tensor(arg, md) for arg, md in operands]
        plain = attr.is_plain and not attr.post_ops and op.reduction == "none"
        first = (*records, tables.chain(op.dst), ("i", int(plain)), ("i", SCATTER_REDUCTIONS.index(op.reduction)))
        if op.algorithm == "elements":
            return tables.program("scatter_elements", (*first, ("i", op.axis)), op.dst.elements, written)
        axes = op.indices.dims[-1]
        numbers = axes, math.prod(op.indices.dims[:-1]), math.prod(op.src.dims[axes:])
        args = (*first, *(("i", number) for number in numbers))
        return tables.program("scatter", args, op.dst.elements, written)
