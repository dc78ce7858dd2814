"""Prelu: slopes broadcast along any dimension, combined with src as two tensors are."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Prelu, PrimitiveAttr
from ...engines.target import Target
from ..layouts import follow
from ..program import Program
from .binary import combine, refuse_operands


class NativePrelu:
    """Rows of elements, 16 at a time; slopes may stay, advance by one element, or step from row to row."""

    name = "native:prelu"
    engine_kind = "cpu"
    general = False
    stays_inside = True

    def reject(self, op: Prelu, attr: PrimitiveAttr, target: Target) -> str | None:
        op = self.complete(op, attr, target)
        return refuse_operands((op.src, op.weights), op.dst, attr)

    def complete(self, op: Prelu, attr: PrimitiveAttr, target: Target) -> Prelu:
        src = follow(op.src, op.dst)
        return replace(op, src=src, dst=follow(op.dst, src), weights=follow(op.weights, src))

    def program(self, op: Prelu, attr: PrimitiveAttr, target: Target) -> Program:
        return combine("prelu", (Arg.SRC, Arg.WEIGHTS), (op.src, op.weights), op.dst, attr)


IMPLEMENTATIONS = (NativePrelu(),)
