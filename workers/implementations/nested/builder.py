"""Collects the program of a primitive made of others: launches, their places, and the scratchpad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, MemoryDesc, OpDesc, PrimitiveAttr, Reorder
from ...desc.equivalence import same_bytes
from ...engines.target import Target
from ...kernels.spec import KernelSpec, Value
from ..native.blocks import LANES
from ..opencl.grid import LIGHT, group, integers, launch, vector_width
from ..primitive_desc import PrimitiveDesc, primitive_desc
from ..program import Launch, LaunchArgument, NestedLaunch, Program

#: Where pieces of scratchpad begin, and bytes behind each that a kernel may over-read.
_ALIGNMENT: Final = 64


class NestedBuilder:
    """Builds a program for a target. Its nested primitives share one piece of scratchpad, since they run in order."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._nested: list[PrimitiveDesc] = []
        self._kernels: list[KernelSpec] = []
        self._launches: list[Launch | NestedLaunch] = []
        self._scratchpad = 0
        self._shared = 0
        self._reordered: dict[tuple[MemoryDesc, LaunchArgument, MemoryDesc], LaunchArgument] = {}

    def program(self) -> Program:
        """Return the program."""
        start = self._scratchpad
        launches = tuple(
            run._replace(scratchpad=start) if isinstance(run, NestedLaunch) else run for run in self._launches
        )
        return Program(tuple(self._kernels), launches, b"", start + self._shared, tuple(self._nested))

    def book(self, nbytes: int) -> LaunchArgument:
        """Book scratchpad and return its place."""
        start = self._scratchpad
        self._scratchpad += -(-(nbytes + _ALIGNMENT) // _ALIGNMENT) * _ALIGNMENT
        return ("s", start)

    @property
    def width(self) -> int:
        """The floats that an item of the primitive's own kernels computes at once."""
        return LANES if self.target.engine_kind == "cpu" else vector_width(self.target)

    def run(
        self,
        kernel: str,
        places: Sequence[LaunchArgument],
        numbers: Sequence[int],
        items: int,
        elements: int,
        **params: Value,
    ) -> None:
        """Add a launch of a kernel of the primitive's own, of which each engine kind has one by this name, for f32 at least.

        It works on ``items`` on the CPU; on OpenCL on ``elements``, smaller pieces whose number is its first number.
        """
        if not elements:
            return
        if self.target.engine_kind == "cpu":
            spec, run = KernelSpec.of(kernel, **params), Launch(0, (*places, *integers(*numbers)), items)
        else:
            local = group(self.target, LIGHT)
            spec = KernelSpec.of(kernel, v=vector_width(self.target), post_ops=(), local=local, **params)
            run = launch(0, elements, local, *places, *integers(elements, *numbers))
        if spec not in self._kernels:
            self._kernels.append(spec)
        self._launches.append(run._replace(kernel=self._kernels.index(spec)))

    def execute(self, pd: PrimitiveDesc, args: Mapping[int, LaunchArgument]) -> None:
        """Add the execution of a primitive on places."""
        if pd not in self._nested:
            self._nested.append(pd)
            self._shared = max(self._shared, pd.program().scratchpad)
        placed = tuple((int(arg), place) for arg, place in args.items())
        self._launches.append(NestedLaunch(self._nested.index(pd), placed))

    def compute(self, op: OpDesc, args: Mapping[int, LaunchArgument]) -> None:
        """Add the execution of an operation by its best implementation. Raises UnsupportedPrimitive."""
        self.execute(primitive_desc(op, PrimitiveAttr(), self.target), args)

    def move(self, src: MemoryDesc, source: LaunchArgument, dst: MemoryDesc, to: LaunchArgument) -> None:
        """Add the reorder from one place to another."""
        if src.elements or dst.nbytes:
            self.compute(Reorder(src, dst), {Arg.SRC: source, Arg.DST: to})

    def reorder_once(self, md: MemoryDesc, at: LaunchArgument, wanted: MemoryDesc) -> LaunchArgument:
        """Return the place of a tensor in the layout wanted: ``at``, or in scratchpad, reordered once."""
        if same_bytes(md, wanted):
            return at
        known = self._reordered.get((md, at, wanted))
        if known is None:
            known = self._reordered[md, at, wanted] = self.book(wanted.nbytes)
            self.move(md, at, wanted, known)
        return known


def memory(arg: int) -> LaunchArgument:
    """Return the place of an execution argument."""
    return ("m", (int(arg), 0))


def shifted(place: LaunchArgument, nbytes: int) -> LaunchArgument:
    """Return the place so many bytes behind another."""
    where, value = place
    if isinstance(value, tuple):
        return where, (value[0], value[1] + nbytes)
    return where, int(value) + nbytes


def nested_attributes(attr: PrimitiveAttr) -> PrimitiveAttr:
    """Return the attributes of a nested primitive: its scratch memory is a part of the outer primitive's.

    Limitation: nested products of f32 are computed in f32, also if a mode allows fewer bits.
    """
    return replace(attr, scratchpad_mode="library", fpmath_mode="strict")
