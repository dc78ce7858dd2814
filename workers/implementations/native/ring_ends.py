"""The ends of rings: kernels that a worker's loop and a client's waits consist of. Nothing is launched."""

from __future__ import annotations

from typing import Final

from ...desc import PrimitiveAttr
from ...desc.operations.ring_ends import RingEnds
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Program

#: The kernels, in the order of an entry's binaries: the worker's, and the two of a client.
PARTS: Final = ("serve", "submit", "wait")


class NativeRingEnds:
    """Sleeps on sockets; needs the x86-64 instructions for atomic memory access, which every host has."""

    name = "native:bells"
    engine_kind = "cpu"
    general = True

    def reject(self, op: RingEnds, attr: PrimitiveAttr, target: Target) -> str | None:
        return None if attr == PrimitiveAttr() else "it takes no attributes"

    def complete(self, op: RingEnds, attr: PrimitiveAttr, target: Target) -> RingEnds:
        return op

    def program(self, op: RingEnds, attr: PrimitiveAttr, target: Target) -> Program:
        return Program(tuple(KernelSpec.of("ring_ends", part=part) for part in PARTS), ())


IMPLEMENTATIONS = (NativeRingEnds(),)
