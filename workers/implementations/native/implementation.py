"""The base of the native implementations made for speed: src and dst have one layout."""

from __future__ import annotations

from typing import Generic, TypeVar

from ...desc import OpDesc, PrimitiveAttr
from ...engines.target import Target
from ..layouts import complete_layouts

Op = TypeVar("Op", bound=OpDesc)


class NativeImplementation(Generic[Op]):
    """Completes layouts; a subclass says what it rejects and describes the program."""

    name: str
    engine_kind = "cpu"
    general = False

    def complete(self, op: Op, attr: PrimitiveAttr, target: Target) -> Op:
        """Return ``op`` with every layout ``any`` chosen."""
        return complete_layouts(op)
