"""Prelu: slopes broadcast along any dimension."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Prelu, PrimitiveAttr
from ...engines.target import Target
from ..layouts import follow
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferencePrelu(ReferenceImplementation[Prelu]):
    """One element after another."""

    name = "ref:prelu"

    def complete(self, op: Prelu, attr: PrimitiveAttr, target: Target) -> Prelu:
        src = follow(op.src, op.dst)
        return replace(op, src=src, dst=follow(op.dst, src), weights=follow(op.weights, src))

    def program(self, op: Prelu, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        weights = tables.tensor(Arg.WEIGHTS, op.weights, op.dst.dims)
        args = (tables.tensor(Arg.SRC, op.src), weights, tables.tensor(Arg.DST, op.dst), tables.chain(op.dst))
        return tables.program("prelu", args, op.dst.elements, [(Arg.DST, op.dst)])
