"""The region loop: kernels that threads take tasks from a queue with. Nothing is launched; a threadpool calls them."""

from __future__ import annotations

from typing import Final

from ...desc import PrimitiveAttr
from ...desc.operations.region_loop import RegionLoop
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Program

#: The parts of a native pool, each a kernel, in the order of its arguments.
PARTS: Final = ("loop", "submit", "nest", "clock")


class NativeRegionLoop:
    """Sleeps on futexes; needs the x86-64 instructions for atomic memory access, which every host has."""

    name = "native:futex"
    engine_kind = "cpu"
    general = True

    def reject(self, op: RegionLoop, attr: PrimitiveAttr, target: Target) -> str | None:
        return None if attr == PrimitiveAttr() else "it takes no attributes"

    def complete(self, op: RegionLoop, attr: PrimitiveAttr, target: Target) -> RegionLoop:
        return op

    def program(self, op: RegionLoop, attr: PrimitiveAttr, target: Target) -> Program:
        return Program(tuple(KernelSpec.of("region_loop", part=part) for part in PARTS), ())


IMPLEMENTATIONS = (NativeRegionLoop(),)
