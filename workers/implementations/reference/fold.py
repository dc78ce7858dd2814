"""Blocks of an image, added up at their places, of any data types and layouts."""

from __future__ import annotations

from ...desc import Arg, Fold, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceFold(ReferenceImplementation[Fold]):
    """One element of the image after another, in float64."""

    name = "ref:fold"

    def reject(self, op: Fold, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        return None

    def program(self, op: Fold, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        records = [tables.tensor(arg, md) for arg, md in op.memories().items()]
        apart = [dilation + 1 for dilation in op.dilations]
        numbers = tables.numbers([*op.strides, *apart, *op.padding_l])
        written = [(int(Arg.DST), op.dst)]
        return tables.program("fold", (*records, numbers), op.dst.elements, written)
