"""What the state machine wants done, and the records it is told with: plain data between `state` and `loop`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from poolrt.workers.plans.execution_plan import PlanConstant


class Role(Enum):
    """What a process that the state machine asks for does."""

    WORKER = "worker"
    CREATOR = "creator"


class Send(NamedTuple):
    """Send a message to a client or process; it is dropped if that one has gone."""

    peer: int
    message: list[Any]


class HangUp(NamedTuple):
    """Close the connection to a peer: a client is gone at once, a process ends and its death is reported later."""

    peer: int
    reason: str


class Spawn(NamedTuple):
    """Start a process that will be known by this number; its death, also at birth, is reported later."""

    peer: int
    role: Role


class Kill(NamedTuple):
    """End a process by force; its death is reported later. ``reason`` is for whoever reads standard error."""

    peer: int
    reason: str


class Lower(NamedTuple):
    """Make a graph ready for the host and the engines of ``targets``.

    The outcome is reported by `State.on_lowered` or `State.on_load_failed`.
    """

    load: int
    graph: dict[str, Any]
    targets: dict[str, list[Any]]


class LookUp(NamedTuple):
    """Ask the store for some primitives of a load, by number; the outcome is reported by `State.on_looked_up`."""

    load: int
    primitives: list[int]


class Forget(NamedTuple):
    """Drop what is kept aside for a load."""

    load: int


class CollectStatistics(NamedTuple):
    """Complete facts about the pool with those of the store and the system, and send them to a client."""

    peer: int
    request: int
    facts: dict[str, Any]


Instruction: TypeAlias = Send | HangUp | Spawn | Kill | Lower | LookUp | Forget | CollectStatistics


@dataclass(frozen=True, slots=True)
class PrimitiveToLoad:
    """A distinct primitive of a graph: the digest of its key, what people call it, its descriptor, what creating it costs."""

    digest: str
    label: str
    descriptor: list[Any]
    cost: float


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """A graph made ready: the plan as workers get it, and what loading it takes. Ports are [name, dims, dtype, bytes]."""

    plan: list[Any]
    steps: int
    primitives: tuple[PrimitiveToLoad, ...]
    constants: tuple[PlanConstant, ...]
    inputs: list[list[Any]]
    outputs: list[list[Any]]
