"""The instructions of the state machine, and the records that they carry: plain data between `state` and `loop`."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, TypeAlias

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.cachestore.deferred_namedtuple import NamedTuple
from poolrt.workers.ipc.bounded_decoding import Payload
from poolrt.workers.plans.execution_plan import PlanConstant

from .call_ring import CallRing
from .ring import Ring


class Role(Enum):
    """The role of a process that the state machine spawns."""

    WORKER = "worker"
    CREATOR = "creator"


class Send(NamedTuple):
    """Send a message to a client or process; the message is dropped if the peer has disconnected."""

    peer: int
    message: list[Any]


class HangUp(NamedTuple):
    """Close the connection to a peer: a client is removed at once, the exit of a process is reported later."""

    peer: int
    reason: str


class Slow(NamedTuple):
    """Note that a message of a client did nothing: with many of them it is read slowly beside an active client."""

    client: int


class Spawn(NamedTuple):
    """Start a process under this number; its exit is reported later, also when the start fails.

    ``compiles``: a creator is forked from the fork server that has imported the compiler.
    """

    peer: int
    role: Role
    compiles: bool = True


class Kill(NamedTuple):
    """Kill a process; its exit is reported later. ``reason`` is printed to standard error."""

    peer: int
    reason: str


class PendingGraph:
    """The bytes of a graph until it is lowered; the state machine drops those of a load that has ended before."""

    __slots__ = ("_data", "nbytes")

    def __init__(self, data: bytes | Payload) -> None:
        self._data: bytes | Payload | None = data
        self.nbytes = len(data)

    def take(self) -> bytes | Payload | None:
        """Return the bytes and keep them no longer; None if they have been dropped."""
        data, self._data = self._data, None
        return data

    def drop(self) -> None:
        """Free the bytes."""
        self._data = None


class Lower(NamedTuple):
    """Lower a graph for the host and the engines of ``targets``.

    The outcome is reported by `State.on_lowered` or `State.on_load_failed`.
    """

    load: int
    client: int
    name: str
    graph: PendingGraph
    targets: dict[str, list[Any]]


class LookUp(NamedTuple):
    """Ask the store for some primitives of a load, by number, and derive others; the outcome goes to `State.on_looked_up`."""

    load: int
    primitives: list[int]


class FindConstants(NamedTuple):
    """Open the files of constants of a load, each with number, name and bytes, for `State.on_constants_found`."""

    load: int
    constants: list[tuple[int, str, int]]


class CloseFiles(NamedTuple):
    """Close files that a load or a model has had; there is no outcome."""

    descriptors: list[int]


class NoteCreated(NamedTuple):
    """Keep the kernels of a created entry, from which later look-ups derive others; there is no outcome."""

    entry: bytes


#: Stands for the compiled ends of rings in the place of a load, whose numbers begin at 1.
RING_ENDS: Final = 0


class FindRingEnds(NamedTuple):
    """Ask the store for the compiled ends of rings; `State.on_ring_ends` gets them, or the load `RING_ENDS` fails."""


class Forget(NamedTuple):
    """Drop the keys and descriptors that the background thread keeps for a load."""

    load: int


class CollectStatistics(NamedTuple):
    """Add the statistics of the store and the system to those of the pool, and send them to a client."""

    peer: int
    request: int
    facts: dict[str, Any]


class TrimMemory(NamedTuple):
    """Return memory that was freed to the system; there is no outcome."""


class AttachRing(NamedTuple):
    """Make the memory and bells of a ring, and send them to its client and worker."""

    ring: Ring


class AttachCalls(NamedTuple):
    """The same for a ring of calls."""

    ring: CallRing


class MakeGate(NamedTuple):
    """Make the gate of a worker, and send it."""

    worker: int


Instruction: TypeAlias = (
    Send
    | HangUp
    | Slow
    | Spawn
    | Kill
    | Lower
    | LookUp
    | FindConstants
    | FindRingEnds
    | CloseFiles
    | NoteCreated
    | Forget
    | CollectStatistics
    | AttachRing
    | AttachCalls
    | MakeGate
)


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The outcome of a `LookUp`, by number: entries with their sources, and the identities of the kernels of other primitives."""

    found: dict[int, tuple[bytes, str]] = field(default_factory=dict)
    kernels: dict[int, frozenset[bytes]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PrimitiveToLoad:
    """A distinct primitive of a graph: digest of its key, label for errors, descriptor, and cost of its creation.

    ``compiles``: its creation needs the compiler of native kernels.
    """

    digest: str
    label: str
    descriptor: list[Any]
    cost: float
    compiles: bool = True


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """A lowered graph: the plan packed for workers, and what loading needs. Ports are [name, dims, dtype, bytes]."""

    plan: bytes
    steps: int
    primitives: tuple[PrimitiveToLoad, ...]
    constants: tuple[PlanConstant, ...]
    inputs: list[list[Any]]
    outputs: list[list[Any]]
    #: Nodes that call kernels of users, with the name of the function; a few if there are many.
    calls: tuple[str, ...] = ()
    #: The names of constants that processes of the node share, by number; empty: the model's own.
    names: tuple[str, ...] = ()
