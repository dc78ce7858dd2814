"""Select of elements of any data type, each operand broadcast along any dimension."""

from __future__ import annotations

from ...desc import Arg, PrimitiveAttr, Select, item_size
from ...engines.target import Target
from ..program import Program
from ..reference.select import complete
from .combined import combine, refuse_operands
from .implementation import NativeImplementation


class NativeSelect(NativeImplementation[Select]):
    """Any strides; vectors along the dimension whose elements are adjacent in dst."""

    name = "native:select"
    stays_inside = True
    # Strides are possible, which other implementations made for speed do not get.
    general = True

    def reject(self, op: Select, attr: PrimitiveAttr, target: Target) -> str | None:
        op = self.complete(op, attr, target)
        if item_size(op.condition.dtype) != 1:
            return f"condition of data type {op.condition.dtype}; only types of one byte are supported"
        for md in (op.src0, op.src1):
            if md.dtype != op.dst.dtype:
                return f"conversion from {md.dtype} to {op.dst.dtype}"
        return refuse_operands(attr, op.condition, op.src0, op.src1, op.dst)

    def complete(self, op: Select, attr: PrimitiveAttr, target: Target) -> Select:
        return complete(op)

    def program(self, op: Select, attr: PrimitiveAttr, target: Target) -> Program:
        operands = ((Arg.SRC, op.condition), (Arg.SRC_1, op.src0), (Arg.SRC_2, op.src1))
        kind = f"u{8 * item_size(op.dst.dtype)}"
        return combine("select", kind, kind, operands, op.dst)


IMPLEMENTATIONS = (NativeSelect(),)
