"""Pad of any data types, layouts and attributes."""

from __future__ import annotations

from ...desc import Arg, Pad, PrimitiveAttr
from ...desc.operations.pad import PAD_MODES
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferencePad(ReferenceImplementation[Pad]):
    """One element after another."""

    name = "ref:pad"

    def program(self, op: Pad, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        records = tables.tensor(Arg.SRC, op.src), tables.tensor(Arg.DST, op.dst), tables.chain(op.dst)
        margins = tables.numbers([number for margin in op.margins() for number in margin])
        numbers = int(attr.is_plain and not attr.post_ops), PAD_MODES.index(op.mode)
        args = (*records, margins, *(("i", number) for number in numbers), ("f", op.value))
        return tables.program("pad", args, op.dst.elements, [(Arg.DST, op.dst)])
