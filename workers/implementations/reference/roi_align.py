"""RoiAlign of any data types, layouts and attributes."""

from __future__ import annotations

from ...desc import Arg, PrimitiveAttr, RoiAlign
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceRoiAlign(ReferenceImplementation[RoiAlign]):
    """One element of the destination after another."""

    name = "ref:roi_align"

    def program(self, op: RoiAlign, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        memories = ((Arg.SRC, op.src), (Arg.SRC_1, op.boxes), (Arg.SRC_2, op.images), (Arg.DST, op.dst))
        records = [tables.tensor(arg, md) for arg, md in memories]
        numbers = int(op.boxes.dtype == "f64"), int(op.algorithm == "max"), op.samples, int(op.half_pixel)
        args = (*records, tables.chain(op.dst), *(("i", number) for number in numbers), ("f", op.scale))
        return tables.program("roi_align", args, op.dst.elements, [(Arg.DST, op.dst)])
