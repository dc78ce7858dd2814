"""The statistics of a pool that need no I/O."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Final, Protocol

from .creations import Creations
from .leases import Leases
from .worker_set import WorkerSet

#: The largest count that a message has. Clients can write to the counts of their rings.
_MOST: Final = 2**63 - 1


class Counted(Protocol):
    """What `State` has to count."""

    worker_set: WorkerSet
    creations: Creations
    leases: Leases

    @property
    def clients(self) -> Sized: ...


def statistics(state: Counted) -> dict[str, Any]:
    """Return the statistics that need no I/O."""
    workers, rings = state.worker_set.workers.values(), state.worker_set.rings
    return {
        "workers": [
            {
                "pid": w.process,
                "state": "starting"
                if not w.ready
                else "busy"
                if w.jobs or w.calling or rings.find_busy(w.number)
                else "idle",
                "runs": min(w.runs + w.ring_calls + rings.completed(w.number), _MOST),
                "numba_imported": w.numba_imported,
            }
            for w in workers
        ],
        "queue": {
            "waiting": state.worker_set.waiting,
            "in_flight": sum(w.load for w in workers),
            "creating": state.creations.waiting
            + sum(c.creation is not None for c in state.creations.creators.values()),
        },
        "arena": {"bytes": state.leases.allocator.nbytes, "used": state.leases.allocator.used},
        "clients": len(state.clients),
        "workers_lost": state.worker_set.lost,
        "ring_ends_failed": rings.ends_failed,
    }
