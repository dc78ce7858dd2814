"""Non-zero of any data types and layouts."""

from __future__ import annotations

from ...desc import Arg, NonZero, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceNonZero(ReferenceImplementation[NonZero]):
    """One item for all elements: the column of each depends on those before it."""

    name = "ref:non_zero"

    def reject(self, op: NonZero, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        return None

    def program(self, op: NonZero, attr: PrimitiveAttr, target: Target) -> Program:
        tables = Tables(attr)
        written = [(Arg.DST, op.indices), (Arg.DST_1, op.count)]
        records = [tables.tensor(arg, md) for arg, md in ((Arg.SRC, op.src), *written)]
        return tables.program(
            "non_zero", (*records, ("i", op.src.elements)), 1, [(int(arg), md) for arg, md in written]
        )
