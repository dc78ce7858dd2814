"""Sum: any number of scaled tensors."""

from __future__ import annotations

from ...desc import Arg, PrimitiveAttr, Sum, multiple_src
from ...engines.target import Target
from ..layouts import complete_sources
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceSum(ReferenceImplementation[Sum]):
    """One element after another."""

    name = "ref:sum"

    def complete(self, op: Sum, attr: PrimitiveAttr, target: Target) -> Sum:
        return complete_sources(op)

    def program(self, op: Sum, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        tensors = [(multiple_src(number), md) for number, md in enumerate(op.srcs)]
        sources = tables.weighted(tensors, op.scales or (1.0,) * len(tensors))
        args = (sources, tables.tensor(Arg.DST, op.dst), tables.chain(op.dst))
        return tables.program("sum", args, op.dst.elements, [(Arg.DST, op.dst)])
