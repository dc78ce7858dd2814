"""Runs on rings: without the coordinator, and as right as by messages when processes stop, exit or break the rules."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import PoolClosed, PoolError
from poolrt.runs import held_up
from poolrt.runs.ring_entry import RingEntry
from poolrt.workers.ipc.ring import CAPACITY, DONE, HEADS, RETURNED, SUBMITTED, SubmittingRing

from .prepared import count_runs, note_probes, rings_of
from .processes import BOUND_S, LONG, is_alive, load_long, relu_graph, wait_until, workers_of
from .servers import started

_X = np.arange(-16, 16, dtype=np.float32).reshape(4, 8)
_Probes = list[SubmittingRing]


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> _Probes:
    return note_probes(monkeypatch)


def _runs(pool: poolrt.Pool, probes: _Probes) -> int:
    """Return how many runs have been submitted on the rings of a pool."""
    return sum(count_runs(ring, probes) for ring in rings_of(pool))


def _run(model: poolrt.Model) -> None:
    np.testing.assert_array_equal(model.run(x=_X)["y"], np.maximum(_X, 0))


def _load(pool: poolrt.Pool) -> poolrt.Model:
    """Return a model whose runs go by rings."""
    model = pool.load(relu_graph())
    for _ in range(8):
        _run(model)
    assert any(ring._ring.submitted for ring in rings_of(pool))
    return model


@contextmanager
def _in_thread(action: Callable[[], object]) -> Iterator[list[BaseException | None]]:
    """Call an action beside the block, and wait for it; the list gets its outcome."""
    outcome: list[BaseException | None] = []

    def call() -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - the outcome
            outcome.append(error)
        else:
            outcome.append(None)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield outcome
    finally:
        thread.join(BOUND_S)
        assert not thread.is_alive()


@pytest.fixture
def own_pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        yield pool


def test_runs_on_rings_need_no_coordinator(
    own_pool: poolrt.Pool, probes: _Probes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_up, "_HELD_UP_S", BOUND_S)  # runs that leave a worker without a processor do need it
    model = _load(own_pool)
    before, pid = _runs(own_pool, probes), own_pool.stats()["pid"]
    _run(model)
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(50):
            _run(model)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert _runs(own_pool, probes) == before + 51
    wait_until(lambda: sum(worker["runs"] for worker in own_pool.stats()["workers"]) == 8 + 51, "all are counted")


def test_a_run_whose_worker_is_killed_before_it_begins_is_done_by_another(
    own_pool: poolrt.Pool, probes: _Probes
) -> None:
    model = _load(own_pool)
    before = _runs(own_pool, probes)
    pids = workers_of(own_pool)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    with _in_thread(lambda: _run(model)) as outcome:
        wait_until(lambda: _runs(own_pool, probes) == before + 1, "the run is submitted")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    assert outcome == [None]
    wait_until(lambda: own_pool.stats()["workers_lost"] == 2, "both are replaced")
    _load(own_pool)


def test_a_run_beside_a_function_goes_to_another_worker(own_pool: poolrt.Pool, tmp_path: Path) -> None:
    model = _load(own_pool)
    hold = tmp_path / "hold"
    for _ in range(3):  # each worker gets the function in turn or again
        hold.touch()
        future = own_pool.submit(_wait_while, str(hold))
        wait_until(future.running, "the function is running")
        for _ in range(20):
            _run(model)
        assert not future.done()
        hold.unlink()
        future.result(BOUND_S)
        _run(model)


def _wait_while(path: str) -> None:
    while os.path.exists(path):
        time.sleep(0.001)


def test_a_model_may_be_closed_while_it_runs_on_a_ring(own_pool: poolrt.Pool) -> None:
    model = _load(own_pool)
    other = _load(own_pool)

    def run_until_closed() -> None:
        while True:
            _run(model)

    with _in_thread(run_until_closed) as outcome:
        time.sleep(0.05)
        model.close()
    assert isinstance(outcome[0], PoolClosed)
    _run(other)


@contextmanager
def _interrupted_when(holds: Callable[[], bool]) -> Iterator[None]:
    """Expect that a condition holds in the block, and that the interrupt ends it that is sent then."""

    def interrupt() -> None:
        wait_until(holds, "the run is there")
        time.sleep(0.02)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with _in_thread(interrupt) as outcome, pytest.raises(KeyboardInterrupt):
        yield
    assert outcome == [None]


def test_slots_of_an_interrupted_run_are_used_again_only_when_it_has_ended(own_pool: poolrt.Pool) -> None:
    model = load_long(own_pool)
    x = np.zeros(LONG, np.float32)
    pids = workers_of(own_pool)
    before = sum(ring._ring.taken for ring in rings_of(own_pool))
    with _interrupted_when(lambda: sum(ring._ring.taken for ring in rings_of(own_pool)) > before):
        model.run(x=x)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    (used,) = (ring for ring in rings_of(own_pool) if ring.under_way)
    (entry,) = used.under_way
    assert isinstance(entry, RingEntry)
    assert entry.status == 0
    memory = own_pool._session.memory
    spare = memory.take_outputs([x.nbytes] * 4)
    assert not {*entry.outputs, *entry.inputs} & {*spare}
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: used._ring.done == used._ring.submitted, "the worker ends it")
    used.look()
    assert entry.status > 0
    assert not used.under_way
    assert set(entry.outputs) <= {*memory.take_outputs([x.nbytes] * 4)}


def test_an_interrupted_run_that_no_worker_has_begun_never_begins(own_pool: poolrt.Pool, probes: _Probes) -> None:
    model = _load(own_pool)
    pids = workers_of(own_pool)
    before = {ring: count_runs(ring, probes) for ring in rings_of(own_pool)}
    taken = sum(ring._ring.taken for ring in rings_of(own_pool))
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    with _interrupted_when(lambda: _runs(own_pool, probes) > sum(before.values())):
        _run(model)
    assert not any(ring.under_way for ring in rings_of(own_pool))
    (used,) = (ring for ring in rings_of(own_pool) if count_runs(ring, probes) > before.get(ring, 0))
    assert sum(ring._ring.taken for ring in rings_of(own_pool)) == taken
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: used._ring.done == used._ring.submitted, "the worker returns it")
    assert used._ring.status(used._ring.done) == RETURNED
    _run(model)


def test_threads_share_the_rings_of_a_pool(own_pool: poolrt.Pool, probes: _Probes) -> None:
    model = _load(own_pool)
    before = _runs(own_pool, probes)
    drawn = [np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32) for seed in range(8)]
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(100):
            if not np.array_equal(model.run(x=drawn[number])["y"], np.maximum(drawn[number], 0)):
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
        assert not thread.is_alive()
    assert not wrong
    assert _runs(own_pool, probes) == before + 800


def test_runs_are_right_whichever_side_spins(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=2, threads=1, spin_us=50, **settings) as pool:
        model = _load(pool)
        (first, second) = sorted(os.sched_getaffinity(0))[:2]
        used = workers_of(pool)
        try:
            for mine, theirs in ((first, second), (first, first)):
                os.sched_setaffinity(0, {mine})
                for pid in used:
                    os.sched_setaffinity(pid, {theirs})
                before = {ring: ring._ring.submitted for ring in rings_of(pool)}
                for _ in range(100):
                    _run(model)
                taken = [ring for ring in rings_of(pool) if ring._ring.submitted > before.get(ring, 0)]
                assert taken
                assert all(ring._ring.worker_ran == theirs + 1 for ring in taken)
        finally:
            os.sched_setaffinity(0, {first, second})


def _change(place: int, value: int) -> Callable[[SubmittingRing], None]:
    """Return what publishes an entry with another word: a worker that is awake could execute one that is changed later."""

    def change(ring: SubmittingRing) -> None:
        sequence = ring.submitted + 1
        words = [sequence, ring.number, ring.model_of(sequence - 1), 1, 1, 0, 0, 4096]
        words[place] = value
        head = HEADS[(sequence - 1) % CAPACITY]
        for number, word in enumerate(words, head):
            ring.words[number] = word
        ring.words[SUBMITTED] = sequence

    return change


def _jump(ring: SubmittingRing) -> None:
    ring._words[8] += 1000


def _fill(ring: SubmittingRing) -> None:
    generator = np.random.default_rng(5)
    for place in range(len(ring._words)):
        ring._words[place] = int(generator.integers(0, 2**63))


@pytest.mark.parametrize(
    "write",
    [
        _change(0, 77),
        _change(1, 0),
        _change(2, 10**6),
        _change(3, 27),
        _change(4, 0),
        _change(6, 2**63),
        _change(7, 100),
    ],
    ids=["sequence", "ring", "model", "inputs", "outputs", "offset", "alignment"],
)
def test_a_client_that_writes_a_wrong_entry_loses_its_connection(
    server: Path, write: Callable[[SubmittingRing], None]
) -> None:
    _break_the_rules(server, write)


@pytest.mark.parametrize("write", [_jump, _fill], ids=["count", "noise"])
def test_a_client_that_writes_anything_to_a_ring_loses_its_connection(
    server: Path, write: Callable[[SubmittingRing], None]
) -> None:
    _break_the_rules(server, write)


def test_a_client_that_writes_its_workers_count_loses_its_connection_and_others_get_statistics(server: Path) -> None:
    with poolrt.connect(server, reconnect_timeout_s=0) as pool, poolrt.connect(server, reconnect_timeout_s=0) as rude:
        model = _load(pool)
        _load(rude)
        for ring in rings_of(rude):
            ring._ring.words[DONE] = 2**64 - 1
        wait_until(lambda: pool.stats()["clients"] == 1, "the client is disconnected")
        _run(model)
        found = pool.stats()
        assert 0 < sum(worker["runs"] for worker in found["workers"]) < 10_000
        assert found["workers_lost"] == 0


def _break_the_rules(server: Path, write: Callable[[SubmittingRing], None]) -> None:
    with poolrt.connect(server) as pool, poolrt.connect(server, reconnect_timeout_s=0) as rude:
        model, rude_model = _load(pool), _load(rude)
        pids = workers_of(pool)
        ring = next(ring for ring in rings_of(rude) if ring._ring.submitted)
        os.set_blocking(ring._bell.fileno(), True)
        write(ring._ring)
        with suppress(BrokenPipeError):  # a worker that was awake has found it by itself
            ring._bell.send(b"\0" * 10)
        wait_until(lambda: pool.stats()["clients"] == 1, "the client is disconnected")
        with pytest.raises(PoolError):
            rude_model.run(x=_X)
        _run(model)
        assert [worker["pid"] for worker in pool.stats()["workers"]] == pids
        assert all(map(is_alive, pids))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, Any]) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("server") / "pool.sock"
    with started(path, settings, workers=2):
        yield path


def _uses_both(pool: poolrt.Pool, model: poolrt.Model) -> bool:
    """Let a client read what has come; return whether two rings accept its model."""
    pool.stats()
    return sum(model._loaded.number in ring.models for ring in rings_of(pool)) == 2


def _share_workers(pools: Sequence[poolrt.Pool], models: Sequence[poolrt.Model]) -> bool:
    """Let two clients use two workers, one client after the other; return whether each has used another one.

    That a worker gets no processor for a while makes some runs go to the other.
    """
    before = [worker["runs"] for worker in pools[0].stats()["workers"]]
    for model in models:
        for _ in range(100):
            _run(model)
    after = [worker["runs"] for worker in pools[0].stats()["workers"]]
    return all(b - a >= 90 for a, b in zip(before, after, strict=True))


def test_clients_begin_with_different_workers(server: Path) -> None:
    with poolrt.connect(server) as one, poolrt.connect(server) as other:
        pools, models = (one, other), (_load(one), _load(other))
        # A client that reads nothing uses the ring that accepts its model first.
        for pool, model in zip(pools, models, strict=True):
            wait_until(partial(_uses_both, pool, model), "both rings accept the model")
        wait_until(lambda: _share_workers(pools, models), "each client uses another worker")


def test_clients_of_a_lost_worker_share_the_workers_again(server: Path) -> None:
    with poolrt.connect(server) as one, poolrt.connect(server) as other:
        pools, models = (one, other), (_load(one), _load(other))
        for pid in workers_of(one):
            os.kill(pid, signal.SIGKILL)
            workers_of(one, [pid])
            for pool, model in zip(pools, models, strict=True):
                wait_until(partial(_uses_both, pool, model), "both rings accept the model")
            wait_until(lambda: _share_workers(pools, models), "each client uses another worker")
