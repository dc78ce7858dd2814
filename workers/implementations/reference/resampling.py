"""Resampling: any number of spatial dimensions, by the nearest element or linearly."""

from __future__ import annotations

from ...desc import Arg, PrimitiveAttr, Resampling
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceResampling(ReferenceImplementation[Resampling]):
    """One element of the destination after another."""

    name = "ref:resampling"

    def program(self, op: Resampling, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        records = tables.tensor(Arg.SRC, op.src), tables.tensor(Arg.DST, op.dst), tables.chain(op.dst)
        args = (*records, ("i", int(op.algorithm == "linear")))
        return tables.program("resampling", args, op.dst.elements, [(Arg.DST, op.dst)])
