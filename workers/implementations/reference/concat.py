"""Concat: sources of any layouts and data types, each copied to its place by a launch of its own."""

from __future__ import annotations

from ...desc import Arg, Concat, PrimitiveAttr, multiple_src
from ...engines.target import Target
from ..layouts import complete_sources
from ..program import Program
from .copies import copy
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceConcat(ReferenceImplementation[Concat]):
    """One element after another."""

    name = "ref:concat"

    def complete(self, op: Concat, attr: PrimitiveAttr, target: Target) -> Concat:
        return complete_sources(op)

    def program(self, op: Concat, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        runs = []
        first = 0
        for number, md in enumerate(op.srcs):
            runs.append(copy(tables, attr, multiple_src(number), md, op.dst, op.axis, first))
            first += md.dims[op.axis]
        return tables.program(*runs[0], written=[(Arg.DST, op.dst)], further=runs[1:])
