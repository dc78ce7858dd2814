"""The compiled loop of a worker: it executes what Python would, refuses what Python refuses, and leaves the rest for Python."""

from __future__ import annotations

import ctypes
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final

import pytest

from poolrt.memory.arena import make_sealed_memory
from poolrt.workers.engines.object_loader import NativeKernel
from poolrt.workers.ipc.channel import Channel
from poolrt.workers.ipc.ring import (
    CAPACITY,
    CLIENT_DEFERS,
    EXECUTED,
    FAILED,
    NBYTES,
    RETURNED,
    WORKER_SLEEPS,
    MalformedRing,
    ServingRing,
    SubmittingRing,
)
from poolrt.workers.kernels.native import ring_words
from poolrt.workers.memory.arena_view import ArenaView
from poolrt.workers.plans.routine import Routine
from poolrt.workers.processes.ring_loop import RingLoop, Served
from poolrt.workers.processes.worker_rings import WorkerRings
from poolrt.workers.threadpools.interface import KERNEL_TYPE, KernelFailed, Region
from poolrt.workers.threadpools.regions import PackedRegions
from tests.workers.compiled import region_loop, ring_end

_NUMBER: Final = 7
_MODEL: Final = 5
_ARENA: Final = 1 << 16
#: Bytes of the model's input and output.
_INPUT, _OUTPUT = 100, 16


def _map(nbytes: int) -> ArenaView:
    memory = make_sealed_memory("test", nbytes)
    try:
        return ArenaView(memory)
    finally:
        os.close(memory)


class _Clock:
    """A model with an input and an output, in which its kernel writes the time."""

    def __init__(self) -> None:
        (self._kernel,) = region_loop("clock")
        self.blob = (ctypes.c_int64 * 3)(0, 1, 0)
        region = Region(self._kernel.address, [ctypes.addressof(self.blob)], "step 'clock'", (self._kernel, self.blob))
        self.routine = Routine([(1, self.blob, 2, 0)], PackedRegions([region]))


class _Side:
    """Both sides of one ring, and the loop that serves it."""

    def __init__(self, routine: Routine, serve: NativeKernel) -> None:
        self.arena = _map(_ARENA)
        self.memory = _map(NBYTES)
        self.buffer = self.memory.buffer(0, NBYTES)
        self.client = SubmittingRing(_NUMBER, self.buffer)
        self.worker = ServingRing(_NUMBER, self.buffer)
        self.words = memoryview(self.buffer).cast("B").cast("Q")
        self.bell, self.far = socket.socketpair()
        self.loop = RingLoop(serve, self.arena, 0)
        routines = {_MODEL: (routine, [_INPUT], [_OUTPUT])}
        self.loop.renew([Served(self.worker, self.memory.address, self.bell.fileno(), routines)], [])

    def written(self, offset: int) -> bool:
        return any(bytes(memoryview(self.arena.buffer(offset, _OUTPUT)).cast("B")))

    def close(self) -> None:
        self.bell.close()
        self.far.close()


@pytest.fixture
def side() -> Iterator[_Side]:
    with closing(_Side(_Clock().routine, ring_end("serve"))) as made:
        yield made


def test_the_loop_executes_entries_in_order_on_the_slots_that_they_name(side: _Side) -> None:
    for number in range(1, 3 * CAPACITY):
        slots = [128 * (number % 17), 128 * (20 + number % 13)]
        ctypes.memset(side.arena.address, 0, _ARENA)
        assert side.client.append(_MODEL, slots[:1], slots[1:]) == number
        assert side.loop.run(sleeps=False) == ring_words.IDLE
        assert (side.client.taken, side.client.done, side.client.status(number)) == (number, number, EXECUTED)
        assert [offset for offset in range(0, _ARENA, 128) if side.written(offset)] == slots[1:]
        assert side.worker.next_sequence == number + 1


def test_the_loop_wakes_a_client_once_for_each_sleep(side: _Side) -> None:
    side.far.setblocking(False)
    for number in range(1, 9):
        side.client.append(_MODEL, [0], [128])
        if number in (2, 5):
            assert side.client.sleep_until(number + 1)
    side.loop.run(sleeps=False)
    assert len(side.far.recv(100)) == 1
    side.client.append(_MODEL, [0], [128])
    side.loop.run(sleeps=False)
    with pytest.raises(BlockingIOError):
        side.far.recv(100)


def test_the_loop_never_executes_an_entry_that_is_withdrawn(side: _Side) -> None:
    for _ in range(3):
        side.client.append(_MODEL, [0], [128])
    assert side.client.withdraw(2)
    assert side.loop.run(sleeps=False) == ring_words.IDLE
    assert [side.client.status(number) for number in (1, 2, 3)] == [EXECUTED, RETURNED, EXECUTED]
    assert (side.client.done, side.client.returned) == (3, 1)


def test_the_loop_executes_exactly_the_entries_that_python_accepts(side: _Side) -> None:
    """Whatever a client writes: what Python refuses stays as it is, and is left for Python."""
    rng = random.Random(int.from_bytes(os.urandom(4)))
    refused = executed = 0
    routines = {_MODEL: (_CLOCK.routine, [_INPUT], [_OUTPUT])}
    values = (0, 1, 2, 3, _NUMBER, _MODEL, CAPACITY + 1, 128, 64, _ARENA, _ARENA - 128, 2**63, 2**64 - 128)
    for _ in range(2000):
        ctypes.memset(side.memory.address, 0, NBYTES)
        client, worker = SubmittingRing(_NUMBER, side.buffer), ServingRing(_NUMBER, side.buffer)
        side.loop.renew([Served(worker, side.memory.address, side.bell.fileno(), routines)], [])
        client.append(_MODEL, [128 * rng.randrange(_ARENA // 128)], [128 * rng.randrange(_ARENA // 128)])
        for _ in range(rng.choice((0, 1, 1, 2))):
            place = 64 + rng.randrange(9) if rng.random() < 0.8 else 8
            side.words[place] = rng.choice((*values, rng.getrandbits(64)))
        expected, is_refused = _accepted(side.buffer)
        found = side.loop.run(sleeps=False)
        assert found == (ring_words.UNUSUAL if is_refused else ring_words.IDLE)
        assert worker.next_sequence == client.done + 1 == expected + 1
        refused += is_refused
        executed += expected
    assert refused > 300
    assert executed > 300


_CLOCK: Final = _Clock()


def _accepted(buffer: Any) -> tuple[int, bool]:
    """Return how many entries Python executes, and whether it refuses the next one; the memory stays as it is."""
    ring = ServingRing(_NUMBER, bytearray(memoryview(buffer).cast("B")))
    count = 0
    try:
        while (entry := ring.take()) is not None:
            if entry.model != _MODEL or (len(entry.inputs), len(entry.outputs)) != (1, 1):
                return count, True
            for offset, nbytes in zip((*entry.inputs, *entry.outputs), (_INPUT, _OUTPUT), strict=True):
                if offset % 128 or offset + nbytes > _ARENA:
                    return count, True
            ring.complete(EXECUTED)
            count += 1
    except MalformedRing:
        return count, True
    return count, False


def test_a_region_that_fails_is_left_for_python_with_its_error() -> None:
    fail = KERNEL_TYPE(lambda status, error, packed: 1)
    address = ctypes.cast(fail, ctypes.c_void_p).value or 0
    blob = (ctypes.c_int64 * 2)(0, 1)
    clock = _CLOCK.routine.regions[0]
    regions = [clock, Region(address, [ctypes.addressof(blob)], "step 'bad'", (fail, blob)), clock]
    with closing(_Side(Routine(_CLOCK.routine.moves, PackedRegions(regions)), ring_end("serve"))) as side:
        side.client.append(_MODEL, [0], [128])
        assert side.loop.run(sleeps=False) == ring_words.FAILED
        assert side.loop.place == 0
        assert isinstance(error := side.loop.error(), KernelFailed)
        assert "step 'bad'" in str(error)
        assert (side.client.taken, side.client.done, side.worker.next_sequence) == (1, 0, 1)


class _Worker:
    """Rings of a worker with the loop, in this process: what its callbacks were called with."""

    def __init__(self, routine: Routine | None) -> None:
        self.arena = _map(_ARENA)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel, self.coordinator = Channel(ours), Channel(theirs)
        self.executed: list[int] = []
        self.errors: list[tuple[int, str]] = []
        self.broken: list[str] = []
        self.routine = routine
        self.rings = WorkerRings(
            self.channel,
            self.arena,
            self._execute,
            lambda ring, sequence, error: self.errors.append((sequence, str(error))),
            lambda ring, reason: self.broken.append(reason),
            lambda model: self.routine if self.executed else None,
        )
        self.rings.take_loop(ring_end("serve"))
        memory = make_sealed_memory("test", NBYTES)
        self.view = ArenaView(memory)
        self.bell, far = socket.socketpair()
        self.bell.settimeout(20)
        self.rings.attach(_NUMBER, memory, far.detach())
        self.rings.allow(_NUMBER, _MODEL, [_INPUT], [_OUTPUT])
        self.client = SubmittingRing(_NUMBER, self.view.buffer(0, NBYTES))

    def _execute(self, model: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        self.executed.append(model)

    def close(self) -> None:
        self.rings.detach(_NUMBER)
        self.bell.close()
        self.channel.close()
        self.coordinator.close()


@pytest.fixture
def worker() -> Iterator[_Worker]:
    with closing(_Worker(_CLOCK.routine)) as made:
        yield made


def test_only_the_first_entry_of_a_model_comes_to_python(worker: _Worker) -> None:
    for _ in range(50):
        worker.client.append(_MODEL, [0], [128])
    worker.rings.serve()
    worker.rings.serve()
    assert worker.client.done == 50
    assert worker.executed == [_MODEL]


def test_a_model_without_a_plan_for_the_loop_is_executed_by_python(worker: _Worker) -> None:
    worker.routine = None
    for _ in range(5):
        worker.client.append(_MODEL, [0], [128])
        worker.rings.serve()
    assert worker.executed == [_MODEL] * 5


def test_a_model_that_is_dropped_is_executed_no_more(worker: _Worker) -> None:
    for _ in range(2):
        worker.client.append(_MODEL, [0], [128])
        worker.rings.serve()
    assert worker.client.done == 2
    worker.rings.forbid(_MODEL)
    worker.client.append(_MODEL, [0], [128])
    worker.rings.serve()
    assert worker.client.done == 2
    assert worker.broken == [f"a run of model {_MODEL}, which the client does not have here"]


def test_a_worker_that_pauses_executes_nothing_and_returns_what_has_come(worker: _Worker) -> None:
    worker.rings.pause()
    worker.client.append(_MODEL, [0], [128])
    worker.rings.serve()
    assert worker.client.done == 0
    worker.coordinator.send([1])
    assert worker.rings.wait()
    worker.channel.receive()
    thread = threading.Thread(target=worker.rings.wait)
    thread.start()
    assert worker.bell.recv(1) or worker.client.done
    worker.coordinator.send([1])
    thread.join(20)
    assert not thread.is_alive()
    assert (worker.client.done, worker.client.status(1), worker.executed) == (1, RETURNED, [])


def test_the_loop_sleeps_until_an_entry_or_a_message_comes(worker: _Worker) -> None:
    worker.client.append(_MODEL, [0], [128])
    worker.rings.serve()
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(worker.rings.wait()))
    thread.start()
    for number in range(2, 40):
        worker.client.append(_MODEL, [0], [128])
        if sleep := worker.client.must_ring():
            worker.bell.send(b"\0")
            worker.client.note_rung(sleep)
        while worker.client.done < number:
            if worker.client.sleep_until(number):
                worker.bell.recv(64)
            worker.client.awake()
    assert not found
    worker.coordinator.send([1])
    thread.join(20)
    assert found == [True]
    assert worker.executed == [_MODEL]


def test_the_loop_finds_entries_without_a_bell_for_some_time_after_a_client_has_deferred_bells(worker: _Worker) -> None:
    """Each side says so before it relies on the other: in an even sleep the worker waits for the bell."""
    worker.client.append(_MODEL, [0], [128])
    worker.rings.serve()
    words = worker.client.words
    thread = threading.Thread(target=worker.rings.wait)
    thread.start()
    for _ in range(5):
        _wait_until(lambda: _looks_no_more(words[WORKER_SLEEPS]))
        words[CLIENT_DEFERS] += 1
        worker.client.append(_MODEL, [0], [128])
        worker.client.note_rung(worker.client.must_ring())
        worker.bell.send(b"\0")
        _wait_until(lambda: worker.client.done == worker.client.submitted and words[WORKER_SLEEPS] % 2)
        worker.client.append(_MODEL, [0], [128])
        _wait_until(lambda: worker.client.done == worker.client.submitted)
    worker.coordinator.send([1])
    thread.join(20)
    assert not thread.is_alive()


def test_the_loop_sleeps_away_from_a_client_that_defers_bells(worker: _Worker) -> None:
    """Its set of processors lacks the client's for so long as it looks by itself, and is whole while it waits for a bell."""
    whole = os.sched_getaffinity(0)
    client = min(whole)
    if whole == {client}:
        pytest.skip("a processor can be left out of several only")
    worker.client.append(_MODEL, [0], [128])
    worker.rings.serve()
    words = worker.client.words
    thread = threading.Thread(target=worker.rings.wait)
    thread.start()

    def set_of_thread() -> set[int]:
        return os.sched_getaffinity(thread.native_id or 0)

    def is_apart(processor: int) -> bool:
        return words[WORKER_SLEEPS] % 2 == 1 and set_of_thread() == whole - {processor}

    for number, left_out in enumerate((client, max(whole) + 1, client, 2**32 - 1, -1), 1):
        _wait_until(lambda: _looks_no_more(words[WORKER_SLEEPS]))
        assert set_of_thread() == whole
        words[CLIENT_DEFERS] = (left_out + 1 & 0xFFFFFFFF) << 32 | number
        worker.client.append(_MODEL, [0], [128])
        worker.client.note_rung(worker.client.must_ring())
        worker.bell.send(b"\0")
        _wait_until(partial(is_apart, left_out))
    worker.coordinator.send([1])
    thread.join(20)
    assert not thread.is_alive()


def _looks_no_more(sleeps: int) -> bool:
    """Return what a number of sleeps says, which is 0 between two: a loop that looks by itself has an odd one."""
    return sleeps > 0 and sleeps % 2 == 0


def _wait_until(holds: Callable[[], object]) -> None:
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.0001)


def test_the_loop_returns_for_a_client_that_has_left(worker: _Worker) -> None:
    thread = threading.Thread(target=lambda: [worker.rings.wait() for _ in range(2)])
    thread.start()
    worker.bell.close()
    worker.coordinator.send([1])
    thread.join(20)
    assert not thread.is_alive()
    worker.client.append(_MODEL, [0], [128])
    worker.rings.serve()
    assert worker.client.done == 1, "what it has submitted is executed"


def test_a_failed_entry_gets_its_error_and_the_next_one_is_executed(worker: _Worker) -> None:
    fails = [True]
    fail = KERNEL_TYPE(lambda status, error, packed: fails[0])
    blob = (ctypes.c_int64 * 2)(0, 1)
    address = ctypes.cast(fail, ctypes.c_void_p).value or 0
    worker.routine = Routine([], PackedRegions([Region(address, [ctypes.addressof(blob)], "step 'bad'", (fail, blob))]))
    worker.client.append(_MODEL, [0], [128])
    worker.rings.serve()
    worker.client.append(_MODEL, [0], [128])
    worker.rings.serve()
    assert worker.errors == [(2, "step 'bad' failed")]
    assert (worker.client.done, worker.client.status(2)) == (2, FAILED)
    fails[0] = False
    worker.client.append(_MODEL, [0], [128])
    worker.rings.serve()
    assert worker.client.status(3) == EXECUTED


def _word(name: str) -> int:
    from poolrt.workers.ipc import ring

    found: int = getattr(ring, name if hasattr(ring, name) else f"_{name}")
    return found


def test_the_words_of_a_ring_are_the_same_for_python_and_the_loop() -> None:
    from poolrt.workers.ipc import ring

    for name in (
        "SUBMITTED",
        "CLIENT_RAN",
        "CLIENT_SLEEPS",
        "CLIENT_DEFERS",
        "TAKEN",
        "DONE",
        "WORKER_RAN",
        "WORKER_SLEEPS",
        "STATE",
    ):
        assert 8 * _word(name) == getattr(ring_words, name), name
    for name in ("ENTRIES", "STATUSES", "WITHDRAWN"):
        assert 8 * _word(name) == getattr(ring_words, name), name
    assert (ring.CAPACITY, ring._ENTRY_WORDS, ring._HEAD) == (
        ring_words.CAPACITY,
        ring_words.ENTRY_WORDS,
        ring_words.HEAD,
    )
    assert (ring.EXECUTED, ring.RETURNED) == (ring_words.EXECUTED, ring_words.RETURNED)
