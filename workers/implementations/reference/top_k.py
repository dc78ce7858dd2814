"""Top k of any data types and layouts."""

from __future__ import annotations

import math

from ...desc import Arg, PrimitiveAttr, TopK
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceTopK(ReferenceImplementation[TopK]):
    """One row along the axis after another; each of its results is searched among all elements."""

    name = "ref:top_k"

    def reject(self, op: TopK, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        return None

    def program(self, op: TopK, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        written = [(Arg.DST, op.dst), (Arg.DST_1, op.indices)]
        records = [tables.tensor(arg, md) for arg, md in ((Arg.SRC, op.src), *written)]
        numbers = op.k, op.src.dims[op.axis], math.prod(op.src.dims[op.axis + 1 :]), int(not op.largest)
        args = (*records, tables.chain(op.dst), *(("i", number) for number in numbers))
        return tables.program("top_k", args, op.dst.elements // op.k, [(int(arg), md) for arg, md in written])
