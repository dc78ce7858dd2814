"""What a coordinator has to look at in time: as long as there is any of it, it ticks."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

from poolrt.coordinator.creations import IDLE_S
from poolrt.coordinator.instructions import HangUp, Instruction, PrimitiveToLoad, Spawn
from poolrt.coordinator.ring import Ring
from poolrt.coordinator.state import State
from poolrt.coordinator.timed_duties import has_duties, note_time
from poolrt.coordinator.worker_set import BACK_OFF_S, FAILED_STARTS_LIMIT
from poolrt.workers.ipc.protocol import Kind

from .orders import ARENA, LIMITS, RETRIES


def _state(workers: int = 1) -> tuple[State, list[int]]:
    """Return a state and the numbers of its workers, which start."""
    state = State(itertools.count(1), ARENA, workers, 1, RETRIES, 64, functions=True, limits=LIMITS)
    return state, _spawned(state.start())


def _spawned(steps: list[Instruction]) -> list[int]:
    return [step.peer for step in steps if isinstance(step, Spawn)]


def _ready(state: State, number: int) -> None:
    state.on_process_message(number, Kind.READY, [Kind.READY, 1000 + number, 1])


def test_workers_that_start_or_work_have_limits_and_those_that_wait_have_none() -> None:
    state, (worker,) = _state()
    assert has_duties(state)
    _ready(state, worker)
    assert not has_duties(state)
    state.on_client_connected(7)
    assert not has_duties(state)
    state.on_client_message(7, Kind.CALL, [Kind.CALL, 1, 0, 0, b"call"])
    assert has_duties(state)
    state.on_process_message(
        worker, Kind.ANSWER, [Kind.ANSWER, next(iter(state.worker_set.workers[worker].jobs)), False, b""]
    )
    assert not has_duties(state)
    state.on_process_exited(worker)
    assert has_duties(state)


def test_entries_on_rings_have_limits_until_they_are_done() -> None:
    state, (worker,) = _state()
    _ready(state, worker)
    view: Any = SimpleNamespace(submitted=3, taken=3, done=3, state=0)
    ring = Ring(90, 7, worker, view)
    state.worker_set.rings._rings[90] = ring
    assert not has_duties(state)
    assert state.worker_set.rings.exist
    view.submitted = 4
    assert has_duties(state)
    view.done = 4
    ring.left = True
    assert has_duties(state)


def test_a_back_off_and_a_creator_that_waits_count_from_the_event_after_a_while_without_ticks() -> None:
    state, (worker,) = _state()
    _ready(state, worker)
    state.on_tick(1.0)
    # Given a back-off that begins long after the last tick
    note_time(state, 500.0)
    spawned = _spawned(state.on_process_exited(worker))
    for _ in range(FAILED_STARTS_LIMIT):
        assert len(spawned) == 1
        spawned = _spawned(state.on_process_exited(spawned[0]))
    assert spawned == []
    assert has_duties(state)
    assert _spawned(state.on_tick(500.0 + BACK_OFF_S[0] / 2)) == []
    assert len(_spawned(state.on_tick(500.0 + BACK_OFF_S[0]))) == 1
    # And a creator that becomes ready long after the last tick
    note_time(state, 900.0)
    state.creations.want(PrimitiveToLoad("a", "primitive a", ["a"], 1.0, True), 1, 0)
    state.creations.schedule()
    (creator,) = state.creations.creators
    state.creations.withdraw(1)
    state.creations.mark_ready(creator)
    assert has_duties(state)
    assert HangUp(creator, "idle") not in state.on_tick(900.0 + IDLE_S / 2)
    assert HangUp(creator, "idle") in state.on_tick(900.0 + IDLE_S)
