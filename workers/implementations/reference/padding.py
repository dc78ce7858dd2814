"""Padding: the elements that are only there to fill blocks."""

from __future__ import annotations

import math

from ...desc import Arg, PrimitiveAttr
from ...desc.operations.padding import Padding
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferencePadding(ReferenceImplementation[Padding]):
    """One element after another."""

    name = "ref:padding"

    def reject(self, op: Padding, attr: PrimitiveAttr, target: Target) -> str | None:
        return None if attr == PrimitiveAttr() else "it takes no attributes"

    def complete(self, op: Padding, attr: PrimitiveAttr, target: Target) -> Padding:
        return op

    def program(self, op: Padding, attr: PrimitiveAttr, target: Target) -> Program:
        tables = Tables(attr)
        record = tables.tensor(Arg.DST, op.dst, quantised=False)
        return tables.program("padding", (record,), math.prod(op.dst.padded_dims), [])
