"""Jobs for workers, and the models that they run: from a client's request to its answer."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.workers.ipc.bounded_decoding import Payload
from poolrt.workers.ipc.outlined_payload import is_outlined
from poolrt.workers.ipc.protocol import Kind

from .functions import Function


@dataclass(slots=True, eq=False)
class Model:
    """A loaded graph: each worker gets it before its first run. ``constants`` are offsets, sizes are bytes."""

    number: int
    client: int
    name: str
    steps: int
    plan: bytes
    entries: list[bytes]
    constants: list[int]
    input_sizes: list[int]
    output_sizes: list[int]
    #: The constants in files that processes of the node share: number -> descriptor, and the name of each constant's file.
    files: dict[int, int] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    #: The descriptors of its primitives, for listings of the plan.
    descriptors: list[list[Any]] = field(default_factory=list)
    #: Nodes that call kernels of users, for the error if its workers are lost; a few if there are many.
    calls: tuple[str, ...] = ()
    #: The priority of its runs among those of its client.
    priority: int = 0
    #: Jobs that need the model; it is dropped once no client wants it and this is 0.
    users: int = 0
    wanted: bool = True
    #: Runs by messages.
    runs: int = 0


@dataclass(slots=True, eq=False)
class Job:
    """``kind`` is the message that starts it: EXECUTE, REORDER, KEEP, APPLY or PROBE. ``label`` names it in errors."""

    kind: Kind
    token: int
    label: str
    #: The client that waits for the answer, and the number of its request; 0 for jobs of a load.
    client: int = 0
    request: int = 0
    load: int = 0
    model: Model | None = None
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    #: Number of the constant to reorder or to keep in a file.
    constant: int = 0
    payload: bytes | Payload = b""
    #: The function to call; None if the payload has it.
    function: Function | None = None
    #: Whether its client knows that a worker executes it.
    begun: bool = False
    engine: str = ""
    #: Workers lost while they executed the job, and how many of them were killed because they took too long.
    lost: int = 0
    overdue: int = 0
    #: For the error: the signal that ended the worker lost last, as a clause; empty if there was none.
    ending: str = ""
    #: Whether its caller waits no longer: it is not repeated, and its worker has little time to end it.
    given_up: bool = False
    #: Whether a function has got slots for its result, and whether its client has disconnected while a worker called it.
    has_room: bool = False
    left: bool = False
    #: Its priority among those of its client, and how many of these have overtaken it because of that.
    priority: int = 0
    overtaken: int = 0
    #: Runs that were started before it while it waited for memory.
    passed: int = 0

    @property
    def holder(self) -> Hashable:
        """The holder of leases on the slots that a worker may touch for this job."""
        return ("job", self.token)

    @property
    def uses_slots(self) -> bool:
        """Whether a function may read or write slots of its client."""
        payload = self.payload
        return self.has_room or is_outlined(payload if isinstance(payload, bytes) else payload.pieces[0])

    @property
    def uses_arena(self) -> bool:
        """Whether its end may free memory of the arena: its own, or what its client keeps until it has the result."""
        return self.kind in (Kind.EXECUTE, Kind.REORDER, Kind.KEEP)
