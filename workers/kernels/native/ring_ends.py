"""The two ends of a ring of runs without the interpreter: the worker's loop, and what a client does to submit and to wait.

`ring_words` describes the memory. The loop takes an entry, checks it, executes the plan of its model on the calling thread and
publishes how that ended. It returns to Python for whatever is unusual, before it has changed anything for that entry.

Guarantees: an entry is copied before it is checked, and no content of a ring makes the loop read or write outside of the
arena, the ring and the worker's own memory. Limitation: counts are published in order on x86-64 only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .atomics import (
    atomic_load,
    atomic_store,
    call_kernel,
    pause,
    read_clock,
    read_processor,
    read_ticks,
    stack_room,
)
from .compiler import types
from .compiler.language import intrinsic
from .processor_sets import leave_out, rejoin
from .ring_words import (
    BENCH_ARENA,
    BENCH_BESIDE,
    BENCH_COUNT,
    BENCH_FAILURE,
    BENCH_LOOKS,
    BENCH_NBYTES,
    BENCH_PLACE,
    BENCH_PLACES,
    BENCH_REGION,
    BENCH_ROUTINE,
    BENCH_SERVED,
    BENCH_SLEEPS,
    BENCH_SPIN,
    BENCH_WATCHED,
    BENCH_WATCHED_COUNT,
    CAPACITY,
    CLIENT_DEFERS,
    CLIENT_RAN,
    CLIENT_SLEEPS,
    CLOSED,
    COUNT,
    DEFERRED,
    DONE,
    ENDED,
    ENTRIES,
    ENTRY_WORDS,
    EXECUTED,
    FAILED,
    FINISHED,
    GRAIN,
    HEAD,
    IDLE,
    INPUTS,
    LOOK,
    MODEL,
    MODEL_BYTES,
    MOVE_BYTES,
    NUMBER,
    OUTPUTS,
    PASSED,
    PLACE_BELL,
    PLACE_COUNTS,
    PLACE_MODEL_COUNT,
    PLACE_MODELS,
    PLACE_NUMBER,
    PLACE_RING,
    PLACE_WORDS,
    RETURNED,
    RETURNS,
    ROUTINE_INPUTS,
    ROUTINE_MOVE_COUNT,
    ROUTINE_MOVES,
    ROUTINE_OUTPUTS,
    ROUTINE_REGION_COUNT,
    ROUTINE_REGIONS,
    ROUTINE_SIZES,
    RUNG,
    SEQUENCE,
    SIGNALLED,
    SLEEPS,
    STATE,
    STATUSES,
    SUBMITTED,
    TAKEN,
    UNUSUAL,
    WITHDRAWN,
    WORKER_RAN,
    WORKER_SLEEPS,
)
from .system_calls import AGAIN, AT_ONCE, INTERRUPTED, poll, receive_bells, ring_bell
from .vec import I64, Builder, Value, iload, pointer

#: Looks of a spin between two looks at the clock, and at where both sides run: some 25 ns each, while these two take 400.
_LOOKS: Final = 32
#: Ticks of the time stamp counter between looks at messages while there are entries: some 50 us.
_LOOK_TICKS: Final = 150_000
#: Returns to Python, which looks for signals, after so many ticks with entries: some tenths of a second.
_SIGNAL_TICKS: Final = 500_000_000
#: Milliseconds after which the loop looks for entries by itself while a client defers bells, and how often it does. A timer of
#: less than the kernel's tick, 4 ms, costs each sleep some 17 us where a hypervisor sets it.
_DEFERRED_MS: Final = 4
_DEFERRED_LOOKS: Final = 8
#: Bytes of bells that one call receives.
_BELLS: Final = 128
#: A region's record: its kernel, the addresses of its tasks' packed arguments, their number; and its bytes.
_REGION_BLOBS: Final = 8
_REGION_COUNT: Final = 16
_REGION_BYTES: Final = 40
_PLACE_BYTES: Final = 8 * PLACE_WORDS


def make(isa: str, part: str) -> tuple[Callable[..., None], Any]:
    """Return a kernel: the worker's ``serve``, or a client's ``submit`` or ``wait``."""
    return {"serve": _serve, "submit": _submit, "wait": _wait}[part]()


@intrinsic
def _store(_: Any, address: types.Integer, value: types.Integer) -> Any:
    """Store an int64 that another process reads after an atomic store behind it, or never; that one takes a tenth of the time."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        b.store(a[1], pointer(b, a[0], I64), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


def _now(room: int) -> int:
    """Return the monotonic time in nanoseconds."""
    read_clock(room)
    return iload(room) * 1_000_000_000 + iload(room + 8)


def _find(place: int, model: int) -> int:
    """Return the routine of a model that may be named at a place, 0 if there is none."""
    models = iload(place + PLACE_MODELS)
    for index in range(iload(place + PLACE_MODEL_COUNT)):
        if iload(models + index * MODEL_BYTES) == model:
            return iload(models + index * MODEL_BYTES + 8)
    return 0


def _copy(ring: int, count: int, room: int) -> None:
    """Copy the entry behind so many that are done to a room."""
    entry = ring + ENTRIES + (count & (CAPACITY - 1)) * (8 * ENTRY_WORDS)
    for word in range(0, 8 * ENTRY_WORDS, 8):
        _store(room + word, atomic_load(entry + word))


def _check(bench: int, place: int, room: int, count: int) -> int:
    """Return the routine for a copied entry whose fields are all right, else 0."""
    if iload(room + SEQUENCE) != count + 1 or iload(room + NUMBER) != iload(place + PLACE_NUMBER):
        return 0
    routine = _find(place, iload(room + MODEL))
    if routine == 0:
        return 0
    inputs = iload(routine + ROUTINE_INPUTS)
    outputs = iload(routine + ROUTINE_OUTPUTS)
    if iload(room + INPUTS) != inputs or iload(room + OUTPUTS) != outputs:
        return 0
    sizes = iload(routine + ROUTINE_SIZES)
    nbytes = iload(bench + BENCH_NBYTES)
    for index in range(inputs + outputs):
        offset = iload(room + 8 * (HEAD + index))
        if offset < 0 or (offset & (GRAIN - 1)) != 0 or offset > nbytes - iload(sizes + 8 * index):
            return 0
    return routine


def _execute(bench: int, routine: int, room: int) -> int:
    """Execute a routine on the slots of a checked entry; return the number of the region that failed, else -1."""
    arena = iload(bench + BENCH_ARENA)
    moves = iload(routine + ROUTINE_MOVES)
    for index in range(iload(routine + ROUTINE_MOVE_COUNT)):
        move = moves + index * MOVE_BYTES
        offset = iload(room + 8 * (HEAD + iload(move)))
        _store(iload(move + 8), arena + offset + iload(move + 16))
    regions = iload(routine + ROUTINE_REGIONS)
    for index in range(iload(routine + ROUTINE_REGION_COUNT)):
        region = regions + index * _REGION_BYTES
        blobs = iload(region + _REGION_BLOBS)
        for task in range(iload(region + _REGION_COUNT)):
            failure = call_kernel(iload(region), iload(blobs + 8 * task))
            if failure != 0:
                atomic_store(bench + BENCH_ROUTINE, routine)
                atomic_store(bench + BENCH_FAILURE, failure)
                return index
    return -1


def _publish(place: int, ring: int, count: int, status: int, room: int) -> None:
    """Publish how the entry behind so many ended, and wake the client if it sleeps for it."""
    counts = iload(place + PLACE_COUNTS)
    _store(ring + STATUSES + 8 * (count & (CAPACITY - 1)), status)
    _store(counts + COUNT, count + 1)
    atomic_store(ring + DONE, count + 1)
    sleeps = atomic_load(ring + CLIENT_SLEEPS)
    if sleeps > 0 and sleeps <= count + 1 and sleeps != iload(counts + RUNG):
        atomic_store(counts + RUNG, sleeps)
        ring_bell(iload(place + PLACE_BELL), room)


def _serve_one(bench: int, place: int, room: int) -> int:
    """Take the next entry of a place, if there is one; return -1 for none, `IDLE` for one that has ended, else why not."""
    ring = iload(place + PLACE_RING)
    count = iload(iload(place + PLACE_COUNTS) + COUNT)
    waiting = atomic_load(ring + SUBMITTED) - count
    if waiting == 0:
        return -1
    if waiting < 0 or waiting > CAPACITY:
        return UNUSUAL
    _copy(ring, count, room)
    routine = _check(bench, place, room, count)
    if routine == 0:
        return UNUSUAL
    atomic_store(ring + TAKEN, count + 1)
    status = EXECUTED
    if atomic_load(ring + WITHDRAWN + 8 * (count & (CAPACITY - 1))) == count + 1:
        status = RETURNED
        atomic_store(ring + RETURNS, atomic_load(ring + RETURNS) + 1)
    else:
        failed = _execute(bench, routine, room)
        if failed >= 0:
            atomic_store(bench + BENCH_REGION, failed)
            return FAILED
    _publish(place, ring, count, status, room)
    return IDLE


def _note(bench: int, here: int) -> None:
    """Publish at each ring where this thread runs."""
    for index in range(iload(bench + BENCH_COUNT)):
        ran = iload(iload(bench + BENCH_PLACES) + index * _PLACE_BYTES + PLACE_RING) + WORKER_RAN
        # Each store would take the cache line from the client, which looks there for the end of its run.
        if atomic_load(ran) != here:
            atomic_store(ran, here)


def _has_entries(bench: int) -> bool:
    for index in range(iload(bench + BENCH_COUNT)):
        place = iload(bench + BENCH_PLACES) + index * _PLACE_BYTES
        if atomic_load(iload(place + PLACE_RING) + SUBMITTED) != iload(iload(place + PLACE_COUNTS) + COUNT):
            return True
    return False


def _is_elsewhere(bench: int, here: int) -> bool:
    """Return whether a client was last seen on another processor."""
    for index in range(iload(bench + BENCH_COUNT)):
        ran = atomic_load(iload(iload(bench + BENCH_PLACES) + index * _PLACE_BYTES + PLACE_RING) + CLIENT_RAN)
        if ran != 0 and ran != here:
            return True
    return False


def _spin(bench: int, room: int) -> bool:
    """Spin for an entry while a client was last seen on another processor; return whether there is one."""
    end = 0  # the clock is read after the first looks: it takes as long as ten of them
    while True:
        here = read_processor(room) + 1
        _note(bench, here)
        if not _is_elsewhere(bench, here):
            return _has_entries(bench)
        for _ in range(_LOOKS):
            if _has_entries(bench):
                return True
            pause()
        now = _now(room)
        if end == 0:
            end = now + iload(bench + BENCH_SPIN)
        elif now >= end:
            return False


def _note_deferred(bench: int) -> bool:
    """Return whether a client has deferred bells since the last call."""
    found = False
    for index in range(iload(bench + BENCH_COUNT)):
        place = iload(bench + BENCH_PLACES) + index * _PLACE_BYTES
        deferred = atomic_load(iload(place + PLACE_RING) + CLIENT_DEFERS)
        if deferred != iload(iload(place + PLACE_COUNTS) + DEFERRED):
            atomic_store(iload(place + PLACE_COUNTS) + DEFERRED, deferred)
            atomic_store(bench + BENCH_BESIDE, deferred >> 32)
            found = True
    return found


def _ask(bench: int, looks: int) -> bool:
    """Ask all clients for a bell at the next entry, later if the loop ``looks`` again; return whether there is none yet."""
    idle = True
    for index in range(iload(bench + BENCH_COUNT)):
        place = iload(bench + BENCH_PLACES) + index * _PLACE_BYTES
        ring = iload(place + PLACE_RING)
        counts = iload(place + PLACE_COUNTS)
        sleeps = iload(counts + SLEEPS) + 2
        atomic_store(counts + SLEEPS, sleeps)
        atomic_store(ring + WORKER_SLEEPS, sleeps + 1 if looks > 0 else sleeps)
        if atomic_load(ring + SUBMITTED) != iload(counts + COUNT):
            idle = False
    return idle


def _awake(bench: int) -> None:
    for index in range(iload(bench + BENCH_COUNT)):
        atomic_store(iload(iload(bench + BENCH_PLACES) + index * _PLACE_BYTES + PLACE_RING) + WORKER_SLEEPS, 0)


def _ready(bench: int, milliseconds: int) -> int:
    """Wait for the descriptors; return what poll(2) returns."""
    return poll(iload(bench + BENCH_WATCHED), iload(bench + BENCH_WATCHED_COUNT), milliseconds)


def _sleep(bench: int, looks: int, room: int) -> int:
    """Wait for the descriptors, away from a client that defers bells; return what poll(2) returns."""
    if looks <= 0:
        return _ready(bench, -1)
    # Linux wakes the reader of a socket on the writer's processor: this thread would take it from the client.
    narrowed = leave_out(iload(bench + BENCH_BESIDE) - 1, room)
    found = _ready(bench, _DEFERRED_MS)
    rejoin(room, narrowed)
    return found


def _serve_all(bench: int, room: int) -> int:
    """Serve places in turn until there is something for Python; return what."""
    begun = looked = read_ticks()
    found = 0
    while True:
        served = False
        for index in range(iload(bench + BENCH_COUNT)):
            outcome = _serve_one(bench, iload(bench + BENCH_PLACES) + index * _PLACE_BYTES, room)
            if outcome == IDLE:
                served = True
            elif outcome >= 0:
                atomic_store(bench + BENCH_PLACE, index)
                return outcome
        # After the entries that the bells are for: their clients have been woken meanwhile.
        if found > 0:
            if _take_bells(bench, found, room):
                return LOOK
            found = 0
        if served:
            _store(bench + BENCH_SERVED, 1)
            now = read_ticks()
            if now - looked > _LOOK_TICKS:
                looked = now
                if now - begun > _SIGNAL_TICKS or _ready(bench, 0) != 0:
                    return LOOK
            continue
        if iload(bench + BENCH_SLEEPS) == 0:
            return IDLE
        if iload(bench + BENCH_SPIN) != 0 and iload(bench + BENCH_SERVED) != 0 and _spin(bench, room):
            continue
        atomic_store(bench + BENCH_SERVED, 0)
        looks = iload(bench + BENCH_LOOKS) - 1
        if _note_deferred(bench):
            looks = _DEFERRED_LOOKS
        atomic_store(bench + BENCH_LOOKS, max(looks, 0))
        if _ask(bench, looks):
            found = _sleep(bench, looks, room)
        _awake(bench)
        if iload(bench + BENCH_SPIN) != 0:
            _note(bench, read_processor(room) + 1)
        if found < 0:
            return LOOK
        begun = looked = read_ticks()


def _take_bells(bench: int, found: int, room: int) -> bool:
    """Receive the bells of places whose descriptors are ready; return whether Python must look at one."""
    # The first descriptors are the places' bells, in their order; a record of poll(2) has the events in its upper half.
    watched = iload(bench + BENCH_WATCHED)
    for index in range(iload(bench + BENCH_COUNT)):
        events = iload(watched + 8 * index) >> 48
        if events != 0:
            found -= 1
            place = iload(bench + BENCH_PLACES) + index * _PLACE_BYTES
            if events != 1 or receive_bells(iload(place + PLACE_BELL), room, _BELLS, AT_ONCE) <= 0:
                return True
    return found > 0


def _serve() -> tuple[Callable[..., None], Any]:
    """Return the worker's loop. Arguments: the bench's address, and where the reason to return is written."""

    def serve(begin: int, end: int, bench: int, outcome: int) -> None:
        atomic_store(outcome, _serve_all(bench, stack_room()))

    return serve, types.void(*[types.int64] * 4)


def _submit() -> tuple[Callable[..., None], Any]:
    """Return what publishes an entry, and wakes the worker if it sleeps. One thread at a time may call it.

    Arguments: the ring's address; that of the entry's words and their number; that of the number of the worker's sleep that was
    rung for last; the bell; whether to publish where this thread runs.
    """

    def submit(begin: int, end: int, ring: int, entry: int, words: int, rung: int, bell: int, is_seen: int) -> None:
        room = stack_room()
        if is_seen != 0:
            atomic_store(ring + CLIENT_RAN, read_processor(room) + 1)
        sequence = iload(entry + SEQUENCE)
        place = ring + ENTRIES + ((sequence - 1) & (CAPACITY - 1)) * (8 * ENTRY_WORDS)
        for word in range(words):
            _store(place + 8 * word, iload(entry + 8 * word))
        atomic_store(ring + SUBMITTED, sequence)
        sleep = atomic_load(ring + WORKER_SLEEPS)
        if sleep != 0 and sleep != iload(rung):
            ring_bell(bell, room)
            atomic_store(rung, sleep)

    return submit, types.void(*[types.int64] * 8)


def _is_done(ring: int, target: int, spin: int) -> bool:
    """Look whether an entry is done, for a while if the worker is awake; return whether it is. Says and asks nothing."""
    if atomic_load(ring + DONE) >= target:
        return True
    if spin != 0 and atomic_load(ring + WORKER_SLEEPS) == 0:
        for _ in range(_LOOKS):
            if atomic_load(ring + DONE) >= target:
                return True
            pause()
    return False


def _end_of(ring: int, target: int) -> int:
    """Return `FINISHED` if an entry is done and its place says that it was executed, else `ENDED`."""
    if atomic_load(ring + DONE) < target:
        return ENDED
    return FINISHED if atomic_load(ring + STATUSES + 8 * ((target - 1) & (CAPACITY - 1))) == EXECUTED else ENDED


def _await(ring: int, target: int, spin: int, bell: int, rung: int) -> int:
    """Wake the worker if it sleeps; wait until an entry is done, or something else has changed; return which."""
    if _is_done(ring, target, spin):
        return _end_of(ring, target)
    room = stack_room()
    here = read_processor(room) + 1 if spin != 0 else 0
    # A full barrier in both cases: whoever published an entry before this call sees whether the worker sleeps. The word is in
    # the cache line of the count of entries, which the worker looks at: a store would take it from there once more.
    atomic_store(room if atomic_load(ring + CLIENT_RAN) == here else ring + CLIENT_RAN, here)
    sleep = atomic_load(ring + WORKER_SLEEPS)
    if sleep != 0 and sleep != atomic_load(rung) and atomic_load(ring + DONE) < target:
        ring_bell(bell, room)
        atomic_store(rung, sleep)
    if spin != 0:
        end = 0
        while True:
            ran = atomic_load(ring + WORKER_RAN)
            if ran == 0 or ran == here:
                break
            for _ in range(_LOOKS):
                if atomic_load(ring + DONE) >= target:
                    return _end_of(ring, target)
                pause()
            now = _now(room)
            if end == 0:
                end = now + spin
            elif now >= end:
                break
            here = read_processor(room) + 1
    if atomic_load(ring + DONE) >= target or atomic_load(ring + STATE) != 0:
        return _end_of(ring, target)
    atomic_store(ring + CLIENT_SLEEPS, target)
    found = 1
    if atomic_load(ring + DONE) < target and atomic_load(ring + STATE) == 0:
        found = receive_bells(bell, room, _BELLS, 0)
    atomic_store(ring + CLIENT_SLEEPS, 0)
    if found > 0:
        return _end_of(ring, target)
    if found == AGAIN:
        return PASSED
    return SIGNALLED if found == INTERRUPTED else CLOSED


def _wait() -> tuple[Callable[..., None], Any]:
    """Return a client's wait, which ends after the time that the bell's socket waits, or earlier: the caller looks again.

    It wakes the worker first, so that an entry that Python has published needs no other call. Arguments: the ring's address; the
    sequence of the entry to wait for; nanoseconds to spin; the bell; where the number of the worker's sleep is that was rung for
    last; where to write why it returned.
    """

    def wait(begin: int, end: int, ring: int, target: int, spin: int, bell: int, rung: int, outcome: int) -> None:
        atomic_store(outcome, _await(ring, target, spin, bell, rung))

    return wait, types.void(*[types.int64] * 8)
