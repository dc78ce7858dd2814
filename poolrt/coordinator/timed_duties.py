"""What a coordinator has to look at as time passes. Without any of it, it sleeps until an event: an idle pool takes no time.

Limits, back-offs and idle times have a look once a second while there is something that they apply to. Only rings change
without an event: their clients send no message for a run. So as long as there are rings, they have a look now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .state import State


def has_duties(state: State) -> bool:
    """Return whether `State.on_tick` has anything to look at before the next event."""
    workers, creations = state.worker_set, state.creations
    return bool(
        state.loads.under_way
        or creations.creators
        or creations.waiting
        or workers.waiting
        or workers.is_backing_off
        or any(worker.jobs or not worker.ready or worker.retired for worker in workers.workers.values())
        or not workers.rings.rest
    )


def note_time(state: State, now: float) -> None:
    """Note the time before the first event after a while without ticks, from which times are counted."""
    state.creations.now = now
    state.worker_set.note_time(now)
