"""The contract of an implementation: pure code that accepts a descriptor, completes its layouts and describes a program.

For each kind of engine an operation has a module that lists its implementations best first in `IMPLEMENTATIONS`, if it
has any beside the reference, which comes last. Before that come those of its function `find_further_implementations`, if it has
one, which imports them. A primitive descriptor takes the first that accepts. No implementation imports a compiler: the asking
process needs none.

The sources of an implementation are part of its keys, and found from its text: name kernels by literals, as the first
argument of a call (see `primitives.sources`), and import by statements.
"""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

from ..desc import OpDesc, PrimitiveAttr
from ..engines.target import Target
from .program import Program

Op = TypeVar("Op", bound=OpDesc)
#: The prefix of the names of reference implementations.
REFERENCE: Final = "ref:"


class Implementation(Protocol[Op]):
    """One way to compute one operation on one kind of engine.

    One whose kernels use extensions of the processor names them in ``extensions``; the others' entries serve every host.
    One whose programs have nested primitives has ``nests = True``; the others are not asked for any.
    One whose kernels read no byte behind an argument has ``stays_inside = True``; for the others, arguments end up to 64 bytes
    before memory that cannot be read.
    One whose programs depend on the number of threads has a method ``threads(op, target)``, which returns the number to make
    a program of a completed ``op`` for, 0 if it makes no difference, given those of ``target``; the others' serve any.
    """

    #: Unique name, which is part of the key: ``<family>:<difference>``. Reference implementations are of ``ref``.
    name: str
    engine_kind: str
    #: Whether `reject` gets every descriptor; the others get only those that `refuse_beyond_inference` lets pass.
    general: bool

    def reject(self, op: Op, attr: PrimitiveAttr, target: Target) -> str | None:
        """Return why this implementation cannot compute ``op`` (layouts may be ``any``), or None when it can."""
        ...

    def complete(self, op: Op, attr: PrimitiveAttr, target: Target) -> Op:
        """Return ``op`` with every layout ``any`` chosen."""
        ...

    def program(self, op: Op, attr: PrimitiveAttr, target: Target) -> Program:
        """Describe kernels, launches, tables and scratchpad for a completed ``op``."""
        ...
