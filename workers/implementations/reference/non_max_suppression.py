"""Non-maximum suppression of any data types and layouts."""

from __future__ import annotations

from ...desc import Arg, NonMaxSuppression, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceNonMaxSuppression(ReferenceImplementation[NonMaxSuppression]):
    """One item for all: each box that follows is searched among all boxes of its class."""

    name = "ref:non_max_suppression"

    def reject(self, op: NonMaxSuppression, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        return None

    def program(self, op: NonMaxSuppression, attr: PrimitiveAttr, target: Target) -> Program:
        tables = Tables(attr)
        sources = [(Arg.SRC, op.boxes), (Arg.SRC_1, op.scores), (Arg.SRC_2, op.limits)]
        written = [(Arg.DST, op.indices), (Arg.DST_1, op.count)]
        records = [tables.tensor(arg, md) for arg, md in (*sources, *written)]
        numbers = (*op.scores.dims, op.most, int(op.center_point))
        args = (*records, *(("i", number) for number in numbers))
        return tables.program("non_max_suppression", args, 1, [(int(arg), md) for arg, md in written])
