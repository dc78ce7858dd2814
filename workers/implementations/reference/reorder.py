"""Reorder: any layout and data type to any other."""

from __future__ import annotations

from ...desc import Arg, PrimitiveAttr, Reorder
from ...engines.target import Target
from ..program import Program
from .attributes import refuse_attributes
from .copies import copy
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceReorder(ReferenceImplementation[Reorder]):
    """One element after another."""

    name = "ref:reorder"

    def reject(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.is_cross_engine:
            return "only reorders within one engine are supported"
        if op.wraps and not (attr.is_plain and not attr.post_ops):
            return "post-ops, scales and zero points are not supported if integers lose high bits"
        return refuse_attributes(op, attr, op.dst)

    def complete(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> Reorder:
        return op

    def program(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        return tables.program(*copy(tables, attr, Arg.SRC, op.src, op.dst, wraps=op.wraps), [(Arg.DST, op.dst)])
