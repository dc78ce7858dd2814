"""The loop of a threadpool's threads: take tasks of parallel regions in order and run them, without the interpreter.

`region_queue` describes the memory that they share, `wake_ups` when they sleep and wake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .atomics import (
    atomic_add,
    atomic_load,
    atomic_store,
    call_kernel,
    compare_and_swap,
    futex_wait,
    futex_wake,
    pause,
    read_clock,
    read_processor,
    read_ticks,
    stack_room,
)
from .compiler import types
from .processor_sets import rejoin
from .region_queue import (
    BACK,
    BLOBS,
    BOTH_ENDS,
    CALLER,
    CAPACITY,
    COUNT,
    DONE,
    ENDED,
    EVENT,
    FINISHED,
    FRONT,
    FUNCTION,
    IN_PLACE,
    LINE,
    NEXT,
    NONE,
    OF_RING,
    OPEN,
    PARENT,
    RATE,
    RECORD,
    RELEASED,
    RING,
    SHARING,
    SLEEPERS,
    SLOT_COUNT,
    SLOTS,
    SPARED,
    SPIN_AFTER,
    SPIN_WITHIN,
    STATUS,
    STOP,
    SUBMITTED,
    TASK,
    WAITING,
    WORK,
)
from .trials import is_trial, note_run, run_alone, runs_alone
from .vec import iload
from .wake_ups import (
    announce,
    arrive,
    forgive,
    is_worth_waking,
    keep_apart,
    make_way,
    note_work,
    parallel_work,
    wake,
    work_ahead,
)

#: Longest sleep, in milliseconds, before a thread that waits for a region returns, to look after signals.
SLICE_MS: Final = 100
#: Microseconds between two looks of a spinning thread that show that others need the processor, and how long they do. A
#: scheduler gives another program more than the first; interrupts and kernel threads take less.
_GAP_US: Final = 500
_REST_US: Final = 20_000
#: Spins after a submission without another one in that time, after which a thread sleeps at once.
_MISSES: Final = 4


def make(isa: str, part: str) -> tuple[Callable[..., None], Any]:
    """Return a kernel.

    The ``loop`` of a thread; ``submit``, which appends regions and wakes threads; ``nest``, which runs a nested region; or a
    ``clock``.
    """
    return {"loop": _loop, "submit": _submit, "nest": _nest, "clock": _clock}[part]()


def _run_task(queue: int, record: int, task: int) -> bool:
    """Run the task that the caller has taken; return whether it was the last of its region to end.

    Then the caller says so, as the last thing that it does with the region: whoever waits for it may drop it at once.
    """
    count = iload(record + COUNT)
    blob = iload(iload(record + BLOBS) + task * 8)
    work = iload(record + WORK)
    begin = read_ticks()
    failure = call_kernel(iload(record + FUNCTION), blob)
    if failure != 0:
        atomic_store(iload(record + STATUS), failure)
    if work != 0:
        atomic_add(work + 8, read_ticks() - begin)
    if atomic_add(record + DONE, 1) + 1 != count:
        return False
    if work != 0:
        note_work(queue, work, atomic_load(work + 8))
        atomic_store(work + 8, 0)
    return True


def _open_next(queue: int, number: int, room: int) -> None:
    """Open the region with a number, if it is submitted, and tell the threads that need to know or are worth waking.

    ``room`` is 0 in a thread that waits for regions, or else the address of memory for two sets of processors.
    """
    is_worth = False
    if iload(queue + CALLER) >= 0 and atomic_load(queue + SLEEPERS) != 0:
        # Before the end of a submission, with which its regions may be dropped: their times are in memory of theirs.
        is_worth = is_worth_waking(queue, work_ahead(queue, number, 0))
    atomic_store(queue + ENDED, number)
    waits = atomic_load(queue + WAITING) != 0
    announce(queue)
    if iload(queue + CALLER) < 0:
        return
    if waits and room != 0:
        make_way(queue, room)
    if is_worth:
        wake(queue)


def _is_nested_in(record: int, owner: int) -> bool:
    """Return whether a slot was opened, at any depth, in a task of ``owner``: a slot's address or `OF_RING`; 0 means any."""
    if owner == 0:
        return True
    above = atomic_load(record + PARENT)
    for _ in range(SLOT_COUNT):
        if above == owner:
            return True
        if above <= IN_PLACE:
            return False
        above = atomic_load(above + PARENT)
    return False


def _help(queue: int, owner: int) -> bool:
    """Run a task of a nested region of ``owner``, as `_is_nested_in` takes it; return whether there was one."""
    for index in range(atomic_load(queue + OPEN)):
        record = iload(queue + SLOTS) + index * LINE
        place = atomic_load(record + NEXT)
        if (place & TASK) >= atomic_load(record + COUNT) or not _is_nested_in(record, owner):
            continue
        # If the slot's region is another one by now, so is its generation.
        if compare_and_swap(record + NEXT, place, place + 1):
            if _run_task(queue, record, place & TASK):
                atomic_add(record + DONE, 1)
                announce(queue)
            return True
    return False


def _clock() -> tuple[Callable[..., None], Any]:
    """Return a task that writes the monotonic time, two int64 of seconds and nanoseconds, to the address in its argument."""

    def clock(begin: int, end: int, address: int) -> None:
        read_clock(address)

    return clock, types.void(*[types.int64] * 3)


def _patience(queue: int, until: int, active: bool, rests: bool, shares: bool) -> int:
    """Return the ticks that a thread without a task spins before it sleeps."""
    if until >= 0:
        return 0 if atomic_load(queue + SHARING) != 0 else iload(queue + SPIN_WITHIN)
    if shares or (rests and not active):
        return 0
    return iload(queue + SPIN_WITHIN) if active else iload(queue + SPIN_AFTER)


def _take(queue: int, helps: int, room: int) -> bool:
    """Run a task of the ring, or else of a slot; return whether there was one. ``room`` is that of `_open_next`."""
    ended = atomic_load(queue + ENDED)
    if helps != 0 and ended < atomic_load(queue + SUBMITTED):
        record = iload(queue + RING) + (ended & (iload(queue + CAPACITY) - 1)) * LINE
        place = atomic_load(record + NEXT)
        if (place >> 32) == (ended & 0x7FFFFFFF):
            count = iload(record + COUNT)
            task = taken = place & TASK
            step = 1
            if count <= BOTH_ENDS:
                front, back = taken & FRONT, taken >> 16
                taken = front + back
                task = front
                if room != 0 and iload(queue + CALLER) >= 0:
                    task, step = count - 1 - back, BACK
            if taken < count:
                if compare_and_swap(record + NEXT, place, place + step) and _run_task(queue, record, task):
                    _open_next(queue, ended + 1, room)
                return True
    if helps != 0 and atomic_load(queue + OPEN) != 0:
        return _help(queue, OF_RING if helps == 1 else 0)
    return False


def _sleep(queue: int, event: int, waits: bool) -> bool:
    """Sleep for a slice of time unless something has changed since the event; return whether something has."""
    atomic_add(queue + SLEEPERS, 1)
    if waits:
        atomic_add(queue + WAITING, 1)
    if atomic_load(queue + EVENT) == event:
        futex_wait(queue + EVENT, event, SLICE_MS)
    if waits:
        atomic_add(queue + WAITING, -1)
    atomic_add(queue + SLEEPERS, -1)
    return atomic_load(queue + EVENT) != event


def _work(queue: int, until: int, helps: int) -> None:
    """Run tasks; see `_loop` for the arguments."""
    room = stack_room()
    idle = looked = misses = rest = patience = 0
    shares = was_active = False
    while True:
        event = atomic_load(queue + EVENT)
        ended = atomic_load(queue + ENDED)
        if until >= 0 and ended >= until:
            break
        if until < 0 and atomic_load(queue + STOP) != 0:
            break
        if _take(queue, helps, room if until < 0 else 0):
            if idle != 0 and not was_active:
                misses = 0
            idle = 0
            continue
        now = read_ticks()
        active = until >= 0 or ended < atomic_load(queue + SUBMITTED)
        if idle == 0 or active != was_active:
            idle = now
            was_active = active
            if until < 0 and iload(queue + CALLER) >= 0:
                is_there = read_processor(room) == atomic_load(queue + CALLER)
                if is_there != shares:
                    shares = is_there
                    atomic_add(queue + SHARING, 1 if shares else -1)
            patience = _patience(queue, until, active, misses >= _MISSES or now < rest, shares)
        elif now - looked > _GAP_US * iload(queue + RATE):
            patience = 0
            rest = now + _REST_US * iload(queue + RATE)
        looked = now
        if now - idle < patience:
            pause()
            continue
        if not active and patience != 0:
            misses += 1
        if shares:
            shares = False
            atomic_add(queue + SHARING, -1)
        narrowed = keep_apart(queue, room) if until < 0 and iload(queue + CALLER) >= 0 else 0
        has_changed = _sleep(queue, event, until >= 0)
        rejoin(room, narrowed)
        if has_changed:
            if until < 0 and iload(queue + CALLER) >= 0:
                if read_ticks() - idle < iload(queue + SPIN_AFTER):
                    misses = 0
                arrive(queue, room)
            idle = 0
        else:
            if until >= 0 or atomic_load(queue + RELEASED) < atomic_load(queue + ENDED):
                break
            patience = 0
            looked = read_ticks()
    if shares:
        atomic_add(queue + SHARING, -1)


def _loop() -> tuple[Callable[..., None], Any]:
    """Return the loop.

    Arguments: the queue's address; the number of regions that must have ended for the call to return (negative: only
    after a request to stop, or if a slice of time was idle and there are ended regions to release); 0 to wait only, 1 to
    run tasks of the ring meanwhile and those nested in them, 2 to run all nested ones too. A call that waits for regions
    may return early; the caller looks and calls again.
    """

    def loop(begin: int, end: int, queue: int, until: int, helps: int) -> None:
        _work(queue, until, helps)

    return loop, types.void(*[types.int64] * 5)


def _append(queue: int, region: int) -> None:
    """Append a region, given by the address of its record, to a ring with room for it."""
    number = atomic_load(queue + SUBMITTED)
    record = iload(queue + RING) + (number & (iload(queue + CAPACITY) - 1)) * LINE
    atomic_store(record + NEXT, NONE)
    _fill(record, region)
    atomic_store(record + NEXT, (number & 0x7FFFFFFF) << 32)
    atomic_store(queue + SUBMITTED, number + 1)


def _fill(record: int, region: int) -> None:
    for word in range(0, RECORD - 8, 8):
        atomic_store(record + word, iload(region + word))
    atomic_store(record + WORK, iload(region + RECORD - 8))
    atomic_store(record + DONE, 0)


def _run(queue: int, regions: int, count: int, trials: int) -> None:
    """Run regions on the calling thread alone or with the others of a synchronous pool, as their record of trials says."""
    begin = read_ticks()
    if trials != 0 and runs_alone(trials):
        run_alone(queue, regions, count)
    elif not _run_together(queue, regions, count, begin, trials != 0 and is_trial(trials)):
        return
    if trials != 0:
        end = read_ticks()
        note_run(queue, trials, regions, count, end - begin, end)


def _run_together(queue: int, regions: int, count: int, begin: int, wakes: bool) -> bool:
    """Submit regions to a synchronous pool with room for them, and run tasks until they have ended.

    A call that ``wakes`` wakes threads that sleep, whatever the work. Return whether no thread has slept on.
    """
    atomic_store(queue + CALLER, read_processor(stack_room()))
    number = atomic_load(queue + SUBMITTED)
    for index in range(count):
        _append(queue, regions + index * RECORD)
    atomic_add(queue + EVENT, 1)
    awake = atomic_load(queue + SLEEPERS) == 0
    if not awake:
        before = atomic_load(queue + SPARED)
        if begin - atomic_load(queue + FINISHED) > iload(queue + SPIN_AFTER):
            before = 0
        work = work_ahead(queue, number, before)
        awake = wakes or is_worth_waking(queue, work)
        if awake:
            work = 0
            wake(queue)
        else:
            forgive(queue)
        atomic_store(queue + SPARED, work)
    _work(queue, number + count, 1)
    atomic_store(queue + FINISHED, read_ticks())
    return awake


def _submit() -> tuple[Callable[..., None], Any]:
    """Return the kernel that appends regions. One thread at a time may call it.

    Arguments: the queue's address; the address of records of five int64 (entry point, address of the array of addresses
    of packed arguments, number of tasks, at least 1, address of the word that records a failure, address of the two words
    of its time or 0); how many; a record of `trials` of these regions, whose times are known, or 0. No region only wakes the
    threads; -1 writes the ticks of now to the address of records.
    On an asynchronous pool the call waits while the ring is full. On a synchronous one, whose ring has room for the
    regions, it runs tasks until they have ended; it may return earlier.
    """

    def submit(begin: int, end: int, queue: int, regions: int, count: int, trials: int) -> None:
        if count < 0:
            atomic_store(regions, read_ticks())
            return
        if count == 0:
            atomic_add(queue + EVENT, 1)
            futex_wake(queue + EVENT)
            return
        if iload(queue + CALLER) >= 0:
            _run(queue, regions, count, trials)
            return
        capacity = iload(queue + CAPACITY)
        for index in range(count):
            number = atomic_load(queue + SUBMITTED)
            while number - atomic_load(queue + ENDED) >= capacity:
                event = atomic_load(queue + EVENT)
                if number - atomic_load(queue + ENDED) >= capacity:
                    _sleep(queue, event, True)
            _append(queue, regions + index * RECORD)
            announce(queue)

    return submit, types.void(*[types.int64] * 6)


def _nest() -> tuple[Callable[..., None], Any]:
    """Return the kernel that runs a nested region on the calling thread, together with idle ones.

    Arguments: the queue's address; the slot's; that of a region's record, as for submitting; a generation above 0, of
    which the slot has had none; and what the slot was opened in, see above. A call may return early; the caller looks and
    calls again with the same arguments.
    """

    def nest(begin: int, end: int, queue: int, record: int, region: int, generation: int, parent: int) -> None:
        if (atomic_load(record + NEXT) >> 32) != generation:
            atomic_store(record + NEXT, NONE)
            _fill(record, region)
            atomic_store(record + PARENT, parent)
            atomic_store(record + NEXT, generation << 32)
            announce(queue)
            if atomic_load(queue + SLEEPERS) != 0 and is_worth_waking(queue, parallel_work(record)):
                wake(queue)
        count = iload(record + COUNT)
        idle = 0
        while True:
            event = atomic_load(queue + EVENT)
            if atomic_load(record + DONE) > count:
                return
            place = atomic_load(record + NEXT)
            if (place & TASK) < count:
                if compare_and_swap(record + NEXT, place, place + 1) and _run_task(queue, record, place & TASK):
                    atomic_add(record + DONE, 1)
                idle = 0
                continue
            if _help(queue, record):
                idle = 0
                continue
            now = read_ticks()
            if idle == 0:
                idle = now
            if now - idle < _patience(queue, 0, True, False, False):
                pause()
                continue
            if not _sleep(queue, event, True):
                return
            idle = 0

    return nest, types.void(*[types.int64] * 7)
