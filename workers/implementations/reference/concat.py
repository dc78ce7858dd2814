"""Concat: sources of any layouts and data types, each copied to its place by a launch of its own."""

from __future__ import annotations

import dataclasses

from ...desc import Arg, Concat, PrimitiveAttr, multiple_src
from ...engines.target import Target
from ..native.blocks import follow
from ..program import Program
from .attributes import refuse_attributes
from .copies import copy
from .tables import Tables


class ReferenceConcat:
    """One element after another."""

    name = "ref:concat"
    engine_kind = "cpu"
    general = True

    def reject(self, op: Concat, attr: PrimitiveAttr, target: Target) -> str | None:
        return refuse_attributes(op, attr, op.dst)

    def complete(self, op: Concat, attr: PrimitiveAttr, target: Target) -> Concat:
        known = next((s for s in op.srcs if not s.is_any), op.dst)
        srcs = tuple(follow(s, known) for s in op.srcs)
        return dataclasses.replace(op, srcs=srcs, dst=follow(op.dst, srcs[0]))

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
