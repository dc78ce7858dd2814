"""The rules of rings, without a process: when they are granted, and what ends with a worker or a client."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from poolrt.coordinator.instructions import (
    RING_ENDS,
    AttachRing,
    FindRingEnds,
    HangUp,
    Instruction,
    Kill,
    Lower,
    LoweredGraph,
    PrimitiveToLoad,
    Send,
    Spawn,
)
from poolrt.coordinator.ring import Ring
from poolrt.coordinator.rings import GRANTED_AFTER
from poolrt.coordinator.state import State
from poolrt.coordinator.statistics import statistics
from poolrt.coordinator.watchdog import Limits
from poolrt.coordinator.worker_set import GIVEN_UP_S
from poolrt.errors import PoolError
from poolrt.workers.ipc.protocol import Kind, check_message
from poolrt.workers.ipc.ring import CAPACITY, DONE, EXECUTED, NBYTES, SUBMITTED, ServingRing, SubmittingRing

_CLIENT = 1000
#: The place of the count of entries that the worker has begun.
_TAKEN = 16
_RETRIES = 2
_RUN_S = 15.0


class _Pool:
    """A state with two workers and a client that has a loaded model and a slot; rings have memory."""

    def __init__(self) -> None:
        limits = Limits(start_s=20.0, run_s=_RUN_S, creation_s=25.0)
        self.state = State(itertools.count(1), 400_000, 2, 1, _RETRIES, 8, functions=True, limits=limits)
        self.sent: list[tuple[int, list[Any]]] = []
        self.workers: list[int] = []
        self.rings: dict[int, Ring] = {}
        self.views: dict[int, tuple[SubmittingRing, ServingRing]] = {}
        self.killed: list[Kill] = []
        self.closed: list[int] = []
        self.lowering: list[int] = []
        self.sought: list[FindRingEnds] = []
        self.requests = itertools.count(1)
        self.play(self.state.start())
        for worker in self.workers:
            self.play(self.state.on_process_message(worker, Kind.READY, [Kind.READY, worker, 1]))
        self.play(self.state.on_client_connected(_CLIENT))
        self.say(Kind.LOAD, "g", ["cpu"], 0, b"graph")
        ports = [["x", [4], "f32", 16]], [["y", [4], "f32", 16]]
        self.play(self.state.on_lowered(self.lowering[0], LoweredGraph(b"", 1, (), (), *ports)))
        self.model = self.last(Kind.LOADED)[2]
        self.say(Kind.ALLOCATE, [16])
        self.slot = self.last(Kind.ALLOCATED)[2][0]

    def play(self, instructions: list[Instruction]) -> None:
        for step in instructions:
            if isinstance(step, Send):
                check_message([int(step.message[0]), *step.message[1:]])
                self.sent.append((step.peer, step.message))
                if step.message[0] == Kind.ALLOW:
                    allowed = [Kind.ALLOWED, *step.message[1:3]]
                    self.play(self.state.on_process_message(step.peer, Kind.ALLOWED, allowed))
            elif isinstance(step, Spawn):
                self.workers.append(step.peer)
            elif isinstance(step, AttachRing):
                memory = bytearray(NBYTES)
                number = step.ring.number
                self.rings[number] = step.ring
                self.views[number] = SubmittingRing(number, memory), ServingRing(number, memory)
                step.ring.view = self.views[number][0]
            elif isinstance(step, Kill):
                self.killed.append(step)
            elif isinstance(step, HangUp):
                self.closed.append(step.peer)
            elif isinstance(step, FindRingEnds):
                self.sought.append(step)
            elif isinstance(step, Lower):
                self.lowering.append(step.load)

    def say(self, kind: Kind, *fields: Any) -> int:
        request = next(self.requests)
        self.play(self.state.on_client_message(_CLIENT, kind, [kind, request, *fields]))
        return request

    def last(self, kind: Kind) -> list[Any]:
        return next(message for _, message in reversed(self.sent) if message[0] == kind)

    def count(self, kind: Kind) -> int:
        return sum(message[0] == kind for _, message in self.sent)

    def run(self, *lost: int) -> None:
        """Send a run, and answer it as a worker."""
        self.say(Kind.RERUN if lost else Kind.RUN, self.model, [self.slot], [], *lost)
        worker, message = next((peer, m) for peer, m in reversed(self.sent) if m[0] == Kind.EXECUTE)
        self.play(self.state.on_process_message(worker, Kind.FINISHED, [Kind.FINISHED, message[1], False]))

    def grant(self) -> list[Ring]:
        for _ in range(GRANTED_AFTER):
            self.run()
        return [*self.rings.values()]

    def exit(self, worker: int) -> None:
        self.play(self.state.on_process_exited(worker, "SIGKILL"))


@pytest.fixture
def pool() -> _Pool:
    return _Pool()


def test_a_client_gets_a_ring_to_each_worker_after_some_runs_and_to_one_that_starts_later(pool: _Pool) -> None:
    for _ in range(GRANTED_AFTER - 1):
        pool.run()
    assert not pool.rings
    pool.run()
    assert {ring.worker for ring in pool.rings.values()} == set(pool.workers)
    assert pool.count(Kind.ALLOW) == pool.count(Kind.RING_MODEL) == 2
    assert pool.count(Kind.MODEL) == 2
    pool.exit(pool.workers[0])
    assert pool.count(Kind.RING_LOST) == 1
    pool.play(pool.state.on_process_message(pool.workers[2], Kind.READY, [Kind.READY, 9, 1]))
    assert [ring.worker for ring in pool.rings.values()][2] == pool.workers[2]


def test_slots_of_a_client_are_free_once_each_worker_has_detached_its_ring(pool: _Pool) -> None:
    rings = pool.grant()
    pool.play(pool.state.on_client_disconnected(_CLIENT))
    assert pool.count(Kind.DETACH) == 2
    for ring in rings:
        assert pool.state.leases.allocator.used > 0
        pool.play(pool.state.on_process_message(ring.worker, Kind.DETACHED, [Kind.DETACHED, ring.number]))
    assert pool.state.leases.allocator.used == 0


def test_slots_of_a_client_do_not_wait_for_a_function_whose_worker_has_paused_its_ring(pool: _Pool) -> None:
    rings = pool.grant()
    pool.say(Kind.CALL, 0, 0, b"function")
    caller = next(peer for peer, message in pool.sent if message[0] == Kind.APPLY)
    for ring in rings:
        if ring.worker == caller:
            pool.views[ring.number][1].pause()
    pool.play(pool.state.on_client_disconnected(_CLIENT))
    other = next(ring for ring in rings if ring.worker != caller)
    assert pool.state.leases.allocator.used > 0
    pool.exit(other.worker)
    assert pool.state.leases.allocator.used == 0


def test_a_run_that_was_lost_with_a_ring_is_repeated_as_often_as_any_other(pool: _Pool) -> None:
    (ring, *_) = pool.grant()
    pool.exit(ring.worker)
    pool.say(Kind.RERUN, pool.model, [pool.slot], [], ring.number)
    for attempt in range(_RETRIES + 1):
        assert pool.count(Kind.FAILED) == (attempt == _RETRIES)
        if attempt < _RETRIES:
            pool.play(pool.state.on_process_message(pool.workers[-1], Kind.READY, [Kind.READY, 9, 1]))
            worker = next(peer for peer, message in reversed(pool.sent) if message[0] == Kind.EXECUTE)
            pool.exit(worker)
    assert f"{_RETRIES + 1} worker processes were lost" in str(pool.last(Kind.FAILED)[2])


def test_a_lost_ring_is_named_once_and_by_its_client_only(pool: _Pool) -> None:
    (ring, other) = pool.grant()
    pool.exit(ring.worker)
    pool.run(ring.number)
    assert not pool.closed
    pool.run(ring.number)
    assert pool.closed == [_CLIENT]
    pool.say(Kind.RERUN, pool.model, [pool.slot], [], other.number)
    assert pool.closed == [_CLIENT, _CLIENT]


def test_a_run_on_a_ring_has_the_limit_of_runs_and_the_message_behind_it_does_not_count_its_loss(pool: _Pool) -> None:
    (ring, *_) = pool.grant()
    client, worker = pool.views[ring.number]
    client.append(pool.model, [0], [0])
    worker.take()
    for _ in range(3):
        pool.say(Kind.RUN, pool.model, [pool.slot], [])
    pool.play(pool.state.on_tick(1.0))
    pool.play(pool.state.on_tick(5.0))
    assert not pool.killed
    for now in (10.0, 15.0, 20.0):
        pool.play(pool.state.on_tick(now))
    (kill,) = [kill for kill in pool.killed if kill.peer == ring.worker]
    assert kill.reason == f"g took longer than {_RUN_S:g} s"
    jobs = list(pool.state.worker_set.workers[ring.worker].jobs.values())
    assert jobs
    pool.exit(ring.worker)
    assert all(job.lost == 0 for job in jobs)


def test_a_worker_has_little_time_for_the_rest_of_a_run_whose_caller_waits_no_longer(pool: _Pool) -> None:
    (ring, *_) = pool.grant()
    client, worker = pool.views[ring.number]
    client.append(pool.model, [0], [0])
    worker.take()
    pool.play(pool.state.on_client_message(_CLIENT, Kind.GIVE_UP, [Kind.GIVE_UP, 0, ring.number, client.submitted]))
    pool.play(pool.state.on_tick(1.0))
    pool.play(pool.state.on_tick(2.0))
    assert not pool.killed
    pool.play(pool.state.on_tick(3.0 + GIVEN_UP_S))
    assert [kill.reason for kill in pool.killed] == [f"g took longer than {GIVEN_UP_S:g} s after its caller's timeout"]
    # The next entry has the usual limit.
    worker.complete(EXECUTED)
    client.append(pool.model, [0], [0])
    worker.take()
    assert not ring.is_given_up


def test_a_worker_that_a_client_finds_held_up_gets_no_runs_until_it_gets_on(pool: _Pool) -> None:
    first, second = pool.grant()
    client, worker = pool.views[first.number]
    # A client that has nothing there, another client, and a ring that is not there, change nothing.
    for number in (first.number, 999):
        pool.play(pool.state.on_client_message(_CLIENT, Kind.HELD_UP, [Kind.HELD_UP, number]))
    client.append(pool.model, [0], [0])
    pool.play(pool.state.on_client_connected(_CLIENT + 1))
    pool.play(pool.state.on_client_message(_CLIENT + 1, Kind.HELD_UP, [Kind.HELD_UP, first.number]))
    assert pool.count(Kind.LOOK) == 0
    # Given a worker that begins nothing of its ring, and its client that says so, again and again
    for _ in range(3):
        pool.play(pool.state.on_client_message(_CLIENT, Kind.HELD_UP, [Kind.HELD_UP, first.number]))
    assert [peer for peer, message in pool.sent if message[0] == Kind.LOOK] == [first.worker]
    # Then the other one gets all runs, up to its limit, and further ones wait
    sent = len(pool.sent)
    for _ in range(4):
        pool.say(Kind.RUN, pool.model, [pool.slot], [])
    given = [peer for peer, message in pool.sent[sent:] if message[0] == Kind.EXECUTE]
    assert given == [second.worker] * 2
    assert pool.state.worker_set.waiting == 2
    # When it gets on, then it gets some, at the next tick
    worker.take()
    worker.complete(EXECUTED)
    pool.play(pool.state.on_tick(1.0))
    given = [peer for peer, message in pool.sent[sent:] if message[0] == Kind.EXECUTE]
    assert given == [second.worker] * 2 + [first.worker] * 2


def test_a_worker_that_is_held_up_gets_runs_if_no_other_one_takes_any(pool: _Pool) -> None:
    first, second = pool.grant()
    for ring in (first, second):
        pool.views[ring.number][0].append(pool.model, [0], [0])
        pool.play(pool.state.on_client_message(_CLIENT, Kind.HELD_UP, [Kind.HELD_UP, ring.number]))
    sent = len(pool.sent)
    for _ in range(4):
        pool.say(Kind.RUN, pool.model, [pool.slot], [])
    given = {peer for peer, message in pool.sent[sent:] if message[0] == Kind.EXECUTE}
    assert given == {first.worker, second.worker}


def test_a_worker_that_begins_nothing_of_its_ring_is_asked_to_look_and_has_the_limit_of_runs(pool: _Pool) -> None:
    (ring, *_) = pool.grant()
    client, worker = pool.views[ring.number]
    client.append(pool.model, [0], [0])
    pool.play(pool.state.on_tick(1.0))
    assert pool.count(Kind.LOOK) == 0
    pool.play(pool.state.on_tick(2.0))
    pool.play(pool.state.on_tick(3.0))
    assert [peer for peer, message in pool.sent if message[0] == Kind.LOOK] == [ring.worker]
    # After each progress, the worker has its whole time again.
    for now in (6.0, 11.0, 15.0):
        pool.play(pool.state.on_tick(now))
    assert not pool.killed
    worker.take()
    worker.complete(EXECUTED)
    client.append(pool.model, [0], [0])
    for now in (17.0, 22.0, 27.0):
        pool.play(pool.state.on_tick(now))
    assert not pool.killed
    pool.play(pool.state.on_tick(32.0))
    (kill,) = pool.killed
    assert (kill.peer, kill.reason) == (ring.worker, f"the wait of a run in its ring took longer than {_RUN_S:g} s")


def test_a_paused_ring_has_no_limit(pool: _Pool) -> None:
    (ring, *_) = pool.grant()
    client, worker = pool.views[ring.number]
    worker.pause()
    client.append(pool.model, [0], [0])
    for now in range(1, 60, 4):
        pool.play(pool.state.on_tick(float(now)))
    assert not pool.killed
    assert pool.count(Kind.LOOK) == 0


def test_a_run_whose_caller_waits_no_longer_is_withdrawn_or_not_repeated(pool: _Pool) -> None:
    requests = [pool.say(Kind.RUN, pool.model, [pool.slot], []) for _ in range(5)]
    begun = [message[1] for _, message in pool.sent if message[0] == Kind.EXECUTE]
    assert len(begun) == 4
    for request in (requests[0], requests[4]):
        pool.play(pool.state.on_client_message(_CLIENT, Kind.GIVE_UP, [Kind.GIVE_UP, request, 0, 0]))
    assert pool.last(Kind.FAILED)[1] == requests[4]
    pool.play(pool.state.on_tick(1.0))
    pool.play(pool.state.on_tick(2.0 + GIVEN_UP_S))
    (kill,) = pool.killed
    pool.exit(kill.peer)
    assert pool.last(Kind.FAILED)[1] == requests[0]
    assert pool.state.worker_set.waiting == 1


def test_runs_on_rings_are_counted_and_show_that_a_worker_is_busy(pool: _Pool) -> None:
    (ring, *_) = pool.grant()
    client, worker = pool.views[ring.number]
    before = sum(each["runs"] for each in pool.state.statistics()["workers"])
    client.append(pool.model, [0], [0])
    assert pool.state.worker_set.rings.find_active() == [_CLIENT]
    worker.take()
    assert [each["state"] for each in pool.state.statistics()["workers"]].count("busy") == 1
    worker.complete(EXECUTED)
    assert sum(each["runs"] for each in pool.state.statistics()["workers"]) == before + 1
    assert pool.state.worker_set.rings.find_active() == []


def test_entries_that_are_returned_are_no_runs(pool: _Pool) -> None:
    (ring, *_) = pool.grant()
    client, worker = pool.views[ring.number]
    before = sum(each["runs"] for each in pool.state.statistics()["workers"])
    client.withdraw(client.append(pool.model, [0], [0]))
    client.append(pool.model, [0], [0])
    worker.take()
    worker.complete(EXECUTED)
    client.append(pool.model, [0], [0])
    worker.pause()
    assert client.done == 3
    assert sum(each["runs"] for each in pool.state.statistics()["workers"]) == before + 1


@pytest.mark.parametrize(
    "words",
    [
        {DONE: 2**64 - 1},
        {DONE: 2**63, SUBMITTED: 2**63, _TAKEN: 2**63},
        {DONE: 1},
        {_TAKEN: 2},
        {SUBMITTED: CAPACITY + 1},
    ],
)
def test_counts_that_only_the_client_can_have_written_are_not_counted_and_end_its_connection(
    pool: _Pool, words: dict[int, int]
) -> None:
    (ring, *_) = pool.grant()
    client, _ = pool.views[ring.number]
    before = [each["runs"] for each in pool.state.statistics()["workers"]]
    pool.play(pool.state.on_tick(1.0))
    assert not pool.closed
    for place, value in words.items():
        client.words[place] = value
    assert [each["runs"] for each in pool.state.statistics()["workers"]] == before
    pool.play(pool.state.on_tick(2.0))
    assert pool.closed == [_CLIENT]
    pool.play(pool.state.on_client_disconnected(_CLIENT))
    pool.play(pool.state.on_process_message(ring.worker, Kind.DETACHED, [Kind.DETACHED, ring.number]))
    assert [each["runs"] for each in pool.state.statistics()["workers"]] == before


def test_counts_are_sensible_at_each_step_of_many_runs(pool: _Pool) -> None:
    (ring, *_) = pool.grant()
    client, worker = pool.views[ring.number]
    for run in range(3 * CAPACITY):
        for _ in range(CAPACITY if run % 2 else 1):
            client.append(pool.model, [0], [0])
            assert not ring.is_damaged
        while worker.take() is not None:
            assert not ring.is_damaged
            worker.complete(EXECUTED)
            assert not ring.is_damaged
    assert ring.completed == client.submitted


def test_a_worker_that_calls_a_function_is_not_taken_for_one_that_executes_a_run(pool: _Pool) -> None:
    pool.grant()
    pool.say(Kind.CALL, 0, 0, b"payload")
    applying = next(peer for peer, message in pool.sent if message[0] == Kind.APPLY)
    rings = [each for each in pool.rings.values() if each.worker == applying]
    client, _ = pool.views[rings[0].number]
    client.words[_TAKEN] = 1  # as a client may write that means harm
    client.words[SUBMITTED] = 1
    for now in range(1, 60, 4):
        pool.play(pool.state.on_tick(float(now)))
    assert not pool.killed


def test_the_error_of_a_run_names_its_model_and_a_client_that_breaks_the_rules_is_disconnected(pool: _Pool) -> None:
    (ring, *_) = pool.grant()
    client, worker = pool.views[ring.number]
    client.append(pool.model, [0], [0])
    worker.take()
    raised = [Kind.RING_RAISED, ring.number, 1, "ValueError", "text", "log", ""]
    pool.play(pool.state.on_process_message(ring.worker, Kind.RING_RAISED, raised))
    assert "g: ValueError: text" in str(pool.last(Kind.RING_FAILED)[3])
    broken = [Kind.RING_BROKEN, ring.number, "a slot at offset 7"]
    pool.play(pool.state.on_process_message(ring.worker, Kind.RING_BROKEN, broken))
    assert pool.closed == [_CLIENT]


def test_both_sides_of_each_ring_get_the_compiled_ends_once_they_are_found() -> None:
    pool = _Pool()
    pool.grant()
    assert len(pool.sought) == 1
    assert pool.count(Kind.RING_ENDS) == 0
    pool.play(pool.state.on_ring_ends(PrimitiveToLoad("d", "ring_ends", [], 0.3), b"entry", frozenset()))
    told = sorted(peer for peer, message in pool.sent if message == [Kind.RING_ENDS, b"entry"])
    assert told == sorted([*pool.workers, _CLIENT])
    pool.play(pool.state.on_process_exited(pool.workers[0]))
    new = pool.workers[-1]
    pool.play(pool.state.on_process_message(new, Kind.READY, [Kind.READY, new, 1]))
    told = [peer for peer, message in pool.sent if message[0] == Kind.RING_ENDS]
    assert sorted(told) == sorted([*pool.workers, _CLIENT])
    assert len(pool.sought) == 1


def _after_a_creation(kind: Kind, *outcome: object) -> _Pool:
    """Return a pool whose store has no ends of rings, once a creator has sent an outcome."""
    pool = _Pool()
    pool.grant()
    before = len(pool.workers)
    pool.play(pool.state.on_ring_ends(PrimitiveToLoad("d", "ring_ends", [], 0.3), b"", frozenset()))
    (creator,) = pool.workers[before:]
    pool.play(pool.state.on_process_message(creator, Kind.READY, [Kind.READY, creator, 1]))
    token = pool.last(Kind.CREATE)[1]
    pool.play(pool.state.on_process_message(creator, kind, [kind, token, *outcome]))
    return pool


def test_ends_that_no_store_has_are_created_and_sent() -> None:
    assert _after_a_creation(Kind.CREATED, b"entry", "created", 0.1).count(Kind.RING_ENDS) == 3


def test_rings_go_on_without_ends_that_cannot_be_created() -> None:
    pool = _after_a_creation(Kind.BROKEN, "E", "text", "")
    assert pool.count(Kind.RING_ENDS) == 0
    assert not pool.closed
    assert len(pool.rings) == 2
    assert statistics(pool.state)["ring_ends_failed"] == 1


def test_a_store_that_cannot_be_asked_for_the_ends_of_rings_is_counted() -> None:
    pool = _Pool()
    pool.grant()
    assert statistics(pool.state)["ring_ends_failed"] == 0
    pool.play(pool.state.on_load_failed(RING_ENDS, PoolError("the cache cannot be used")))
    assert statistics(pool.state)["ring_ends_failed"] == 1
    assert pool.count(Kind.FAILED) == 0
    assert len(pool.rings) == 2
