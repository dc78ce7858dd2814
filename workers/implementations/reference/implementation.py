"""The base of the reference implementations: any data type, layout and attribute of an operation."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from ...desc import OpDesc, PrimitiveAttr
from ...engines.target import Target
from ..layouts import complete_layouts
from .attributes import refuse_attributes

Op = TypeVar("Op", bound=OpDesc)


class ReferenceImplementation(Generic[Op]):
    """Accepts every descriptor whose attributes it supports; a subclass describes the program, and may accept less."""

    name: str
    engine_kind = "cpu"
    general = True

    def reject(self, op: Op, attr: PrimitiveAttr, target: Target) -> str | None:
        """Return why ``op`` cannot be computed, or None."""
        described: Any = op
        return refuse_attributes(op, attr, described.dst)

    def complete(self, op: Op, attr: PrimitiveAttr, target: Target) -> Op:
        """Return ``op`` with every layout ``any`` chosen."""
        return complete_layouts(op)
