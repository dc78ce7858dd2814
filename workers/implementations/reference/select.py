"""Select of any data types, layouts and attributes."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, PrimitiveAttr, Select
from ...engines.target import Target
from ..layouts import follow
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceSelect(ReferenceImplementation[Select]):
    """One element after another."""

    name = "ref:select"

    def complete(self, op: Select, attr: PrimitiveAttr, target: Target) -> Select:
        return complete(op)

    def program(self, op: Select, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        operands = ((Arg.SRC, op.condition), (Arg.SRC_1, op.src0), (Arg.SRC_2, op.src1))
        sources = [tables.tensor(arg, md, op.dst.dims) for arg, md in operands]
        plain = int(attr.is_plain and not attr.post_ops)
        args = (*sources, tables.tensor(Arg.DST, op.dst), tables.chain(op.dst), ("i", plain))
        return tables.program("selection", args, op.dst.elements, [(Arg.DST, op.dst)])


def complete(op: Select) -> Select:
    """Return an operation with every layout ``any`` chosen: that of the first tensor with a layout and dst's shape."""
    own = (op.dst, op.src0, op.src1, op.condition)
    known = next((md for md in own if not md.is_any and md.dims == op.dst.dims), op.dst)
    condition, src0, src1, dst = (follow(md, known) for md in (op.condition, op.src0, op.src1, op.dst))
    return replace(op, condition=condition, src0=src0, src1=src1, dst=dst)
