"""Rotary of any data types, layouts and attributes."""

from __future__ import annotations

from ...desc import Arg, PrimitiveAttr, Rotary
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceRotary(ReferenceImplementation[Rotary]):
    """One element after another."""

    name = "ref:rotary"

    def program(self, op: Rotary, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables, half = Tables(attr), op.cosine.dims[3]
        angles = (*op.dst.dims[:3], half)
        sources = ((Arg.SRC, op.src, op.dst.dims), (Arg.SRC_1, op.cosine, angles), (Arg.SRC_2, op.sine, angles))
        records = [tables.tensor(arg, md, dims) for arg, md, dims in sources]
        numbers = (("i", op.dst.dims[3]), ("i", half), ("i", int(op.interleaved)))
        args = (*records, tables.tensor(Arg.DST, op.dst), tables.chain(op.dst), *numbers)
        return tables.program("rotary", args, op.dst.elements, [(Arg.DST, op.dst)])
