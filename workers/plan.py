"""A plan: a graph made ready for one engine, as the data that a worker executes.

Steps run in order. Every argument of a step has a *place*: an input, an output, a constant, or an offset in the
workspace that each worker keeps to itself. Constants are stored once for all workers, in the layout that the plan chose.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class PlaceKind(IntEnum):
    """Where the memory of an argument is."""

    INPUT = 0
    OUTPUT = 1
    CONSTANT = 2
    WORK = 3


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an argument: the number of an input, output or constant, or a byte offset in the workspace.

    The argument begins ``start`` bytes after the beginning of what lies there.
    """

    kind: PlaceKind
    value: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The execution of primitive number ``primitive`` on placed arguments; ``name`` is the graph's name for it."""

    primitive: int
    args: tuple[tuple[int, Place], ...]
    name: str


@dataclass(frozen=True, slots=True)
class PlanConstant:
    """A constant: value id in the graph, bytes as given, and where its layout differs the reorder that makes ``nbytes``."""

    value: int
    raw_nbytes: int
    nbytes: int
    reorder: int | None


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a plan, always row-major."""

    name: str
    dims: tuple[int, ...]
    dtype: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """All that a worker needs beside the entries of the primitives; sizes in bytes."""

    engine: str
    steps: tuple[Step, ...]
    constants: tuple[PlanConstant, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    workspace: int
    primitives: int

    def to_wire(self) -> list[object]:
        """Return plain data for a message."""
        return [
            self.engine,
            [[s.primitive, [[arg, int(p.kind), p.value, p.start] for arg, p in s.args], s.name] for s in self.steps],
            [[c.value, c.raw_nbytes, c.nbytes, c.reorder] for c in self.constants],
            [[p.name, list(p.dims), p.dtype, p.nbytes] for p in self.inputs],
            [[p.name, list(p.dims), p.dtype, p.nbytes] for p in self.outputs],
            self.workspace,
            self.primitives,
        ]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> ExecutionPlan:
        """Rebuild from `to_wire`'s data. Raises ValueError where a number is out of range."""
        engine, steps, constants, inputs, outputs, workspace, primitives = wire
        plan = cls(
            str(engine),
            tuple(Step(s[0], tuple((a, Place(PlaceKind(k), v, b)) for a, k, v, b in s[1]), s[2]) for s in steps),
            tuple(PlanConstant(*c) for c in constants),
            tuple(Port(p[0], tuple(p[1]), p[2], p[3]) for p in inputs),
            tuple(Port(p[0], tuple(p[1]), p[2], p[3]) for p in outputs),
            int(workspace),
            int(primitives),
        )
        plan.check()
        return plan

    def check(self) -> None:
        """Raise ValueError where a step names a primitive or place that the plan does not have."""
        limits = {
            PlaceKind.INPUT: len(self.inputs),
            PlaceKind.OUTPUT: len(self.outputs),
            PlaceKind.CONSTANT: len(self.constants),
            PlaceKind.WORK: self.workspace,
        }
        for step in self.steps:
            if not 0 <= step.primitive < self.primitives:
                raise ValueError(f"step {step.name!r} names primitive {step.primitive} of {self.primitives}")
            for arg, place in step.args:
                if not 0 <= place.value < limits[place.kind] or not 0 <= place.start <= self._room(place):
                    raise ValueError(f"step {step.name!r}, argument {arg}: {place} is out of range")

    def _room(self, place: Place) -> int:
        """Return the bytes that lie behind the beginning of a place."""
        if place.kind is PlaceKind.WORK:
            return self.workspace - place.value
        if place.kind is PlaceKind.CONSTANT:
            return self.constants[place.value].nbytes
        ports = self.inputs if place.kind is PlaceKind.INPUT else self.outputs
        return ports[place.value].nbytes
