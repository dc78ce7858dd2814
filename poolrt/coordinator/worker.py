"""One worker as the coordinator knows it."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.workers.ipc.gate import Gate

from .jobs import Job


@dataclass(slots=True, eq=False)
class Worker:
    """One worker process. ``jobs`` are in flight, in the order of their execution."""

    number: int
    #: `FailedStarts.total` at its spawn.
    failed_starts: int = 0
    ready: bool = False
    process: int = 0
    numba_imported: bool = False
    runs: int = 0
    models: set[int] = field(default_factory=set)
    #: Models whose constants in files it was sent.
    mapped: set[int] = field(default_factory=set)
    #: Functions that were sent to it, and the clients whose functions it has called.
    functions: set[int] = field(default_factory=set)
    clients: set[int] = field(default_factory=set)
    jobs: dict[int, Job] = field(default_factory=dict)
    applying: bool = False
    applied: bool = False
    overdue: bool = False
    #: Whether its exit is certain, because its fork server has exited.
    doomed: bool = False
    #: Functions that it has called, and whether it has called enough of them and is to exit.
    calls: int = 0
    retired: bool = False
    #: What keeps jobs and calls on rings apart, and whether it is made or asked for.
    gate: Gate | None = None
    has_gate: bool = False

    @property
    def calling(self) -> bool:
        """Whether it calls a function that a client has given it on a ring, or is going to."""
        return self.gate is not None and not self.jobs and self.gate.is_calling

    def reserve(self) -> bool:
        """Let no call on a ring begin before `Gate.open`; return whether none is under way, so that a job may be given."""
        return self.gate is None or bool(self.jobs) or self.gate.close()

    @property
    def ring_calls(self) -> int:
        """Functions that it has called on rings."""
        return self.gate.calls if self.gate is not None else 0

    @property
    def load(self) -> int:
        """The number of jobs in flight."""
        return len(self.jobs)
