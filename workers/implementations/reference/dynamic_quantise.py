"""Quantisation by the range of a tensor, of any data types and layouts."""

from __future__ import annotations

from ...desc import Arg, DynamicQuantise, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceDynamicQuantise(ReferenceImplementation[DynamicQuantise]):
    """One item for all: the range first, then one element after another."""

    name = "ref:dynamic_quantise"

    def reject(self, op: DynamicQuantise, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        return None

    def program(self, op: DynamicQuantise, attr: PrimitiveAttr, target: Target) -> Program:
        tables = Tables(attr)
        written = [(Arg.DST, op.dst), (Arg.DST_1, op.scale), (Arg.DST_2, op.zero_point)]
        records = [tables.tensor(arg, md) for arg, md in ((Arg.SRC, op.src), *written)]
        args = (*records, ("i", op.src.elements))
        return tables.program("dynamic_quantise", args, 1, [(int(arg), md) for arg, md in written])
