"""Sum: any number of scaled tensors."""

from __future__ import annotations

import dataclasses

from ...desc import Arg, PrimitiveAttr, Sum, multiple_src
from ...engines.target import Target
from ..native.blocks import follow
from ..program import Program
from .attributes import refuse_attributes
from .tables import Tables


class ReferenceSum:
    """One element after another."""

    name = "ref:sum"
    engine_kind = "cpu"
    general = True

    def reject(self, op: Sum, attr: PrimitiveAttr, target: Target) -> str | None:
        return refuse_attributes(op, attr, op.dst)

    def complete(self, op: Sum, attr: PrimitiveAttr, target: Target) -> Sum:
        known = next((s for s in op.srcs if not s.is_any), op.dst)
        srcs = tuple(follow(s, known) for s in op.srcs)
        return dataclasses.replace(op, srcs=srcs, dst=follow(op.dst, srcs[0]))

    def program(self, op: Sum, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        tensors = [(multiple_src(number), md) for number, md in enumerate(op.srcs)]
        sources = tables.weighted(tensors, op.scales or (1.0,) * len(tensors))
        args = (sources, tables.tensor(Arg.DST, op.dst), tables.chain(op.dst))
        return tables.program("sum", args, op.dst.elements, [(Arg.DST, op.dst)])
