"""The base of the OpenCL implementations: row-major f32, and the post-operations that they take."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from ...desc import Arg, OpDesc, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .layouts import reject_layouts, row_major
from .post_ops import reject_chain

Op = TypeVar("Op", bound=OpDesc)


class OpenClImplementation(Generic[Op]):
    """Base of the implementations: accepts row-major f32; a subclass describes the program, and may accept less."""

    name: str
    engine_kind: str = "opencl"
    general: bool = False
    takes_post_ops: ClassVar[bool] = False

    def reject(self, op: Op, attr: PrimitiveAttr, target: Target) -> str | None:
        """Return why ``op`` cannot be computed, or None."""
        if attr.post_ops and not self.takes_post_ops:
            return "no post-ops"
        return reject_layouts(op) or reject_chain(attr, op.memories()[Arg.DST])

    def complete(self, op: Op, attr: PrimitiveAttr, target: Target) -> Op:
        """Return ``op`` with every layout row-major."""
        return row_major(op)

    def program(self, op: Op, attr: PrimitiveAttr, target: Target) -> Program:
        """Describe kernels and launches; an empty dst needs none."""
        if op.memories()[Arg.DST].elements == 0:
            return Program((), ())
        return self.describe(op, attr, target)

    def describe(self, op: Op, attr: PrimitiveAttr, target: Target) -> Program:
        """Describe kernels and launches for a dst that is not empty."""
        raise NotImplementedError  # every implementation defines it
