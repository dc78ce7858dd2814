"""When threads of a native pool are woken, and where they run then.

**Waking.** To wake a thread takes some tens of microseconds, in which the others could have done short work. On a
synchronous pool the calling thread runs all tasks that no other thread takes. So it wakes others only for work that is
longer than waking takes, which each wake-up measures: tasks that lie ahead, and those of the last few submissions if
they were close together. A waiting thread spins for a while before it sleeps, since the next region is usually near.

Each submission that wakes no thread lowers what a wake-up is thought to take, by an eighth of what it exceeds the least of
late by: a machine that was busy for a moment must not seem to be for long.

**Place.** Linux often places a thread that wakes on the processor of the thread that woke it, above all in virtual machines,
whose idle processors look busy. There it waits for up to 3 ms, or the two take turns. So a thread that falls asleep takes
the caller's processor out of its set, and puts its set back when it wakes. If the caller has moved meanwhile, the thread moves
when it arrives. If there is no other processor, neither spins. A thread that finds that it did not run for a while sleeps at
once, and spins only within submissions for some time: others need the processor.

A caller that sleeps within a submission leaves its processor idle. The system may move a thread there that has a task and waits
for another processor. When that thread wakes the caller, it leaves, or the caller would wait until it sleeps.
"""

from __future__ import annotations

from typing import Final

from .atomics import (
    atomic_add,
    atomic_load,
    atomic_store,
    compare_and_swap,
    futex_wake,
    read_processor,
    read_ticks,
)
from .processor_sets import leave, leave_out
from .region_queue import (
    APART,
    ARRIVAL,
    CALLER,
    CAPACITY,
    COUNT,
    EVENT,
    LINE,
    RATE,
    RING,
    SLEEPERS,
    SOONEST,
    SPIN_WITHIN,
    SUBMITTED,
    WAITING,
    WAKES,
    WOKEN,
    WORK,
)
from .vec import iload

#: Regions that are looked at to learn whether the work ahead is worth a wake-up.
_AHEAD: Final = 64
#: Nanoseconds of work that is always worth one: that of tasks whose time is unknown.
_LONG: Final = 1 << 40
#: Nanoseconds that a wake-up is thought to take at most: more than that is a busy machine's.
_LATEST: Final = 1_000_000
#: A wake-up takes the least of late, or longer: a thirty-second of the difference moves that towards each that does.
_DRIFT: Final = 32


def nanoseconds(queue: int, ticks: int) -> int:
    """Return a time in nanoseconds."""
    return ticks * 1000 // iload(queue + RATE)


def note_work(queue: int, work: int, ticks: int) -> None:
    """Let the time of a region's tasks, in the word at an address, follow the ticks that they have taken now."""
    taken = nanoseconds(queue, ticks)
    before = atomic_load(work)
    # A task that was held up seems to take longer.
    atomic_store(work, taken if taken < before else before + (taken - before) // 4)


def parallel_work(record: int) -> int:
    """Return the nanoseconds of a region's tasks that another thread could run."""
    if iload(record + COUNT) <= 1:
        return 0
    work = iload(record + WORK)
    return _LONG if work == 0 else atomic_load(work)


def is_worth_waking(queue: int, work: int) -> bool:
    """Return whether so many nanoseconds of work are shorter with a thread that sleeps now."""
    return work * 2 > atomic_load(queue + ARRIVAL) * 3


def work_ahead(queue: int, number: int, work: int) -> int:
    """Return ``work`` and that of regions from a number on, in nanoseconds, as far as it matters.

    A long region of one task ends it: a thread that is woken now would sleep by then.
    """
    ring = iload(queue + RING)
    mask = iload(queue + CAPACITY) - 1
    patience = nanoseconds(queue, iload(queue + SPIN_WITHIN))
    end = min(atomic_load(queue + SUBMITTED), number + _AHEAD)
    while number < end and not is_worth_waking(queue, work):
        record = ring + (number & mask) * LINE
        found = parallel_work(record)
        alone = iload(record + WORK)
        if found == 0 and alone != 0 and atomic_load(alone) > patience:
            break
        work += found
        number += 1
    return work


def wake(queue: int) -> None:
    """Wake sleeping threads of a synchronous pool for work, and begin to measure how long it takes."""
    # A thread that has to leave the caller's processor first arrives late, which says nothing about the next wake-up.
    has_moved = atomic_load(queue + APART) != atomic_load(queue + CALLER)
    atomic_store(queue + WOKEN, 0 if has_moved else read_ticks())
    atomic_add(queue + WAKES, 1)
    futex_wake(queue + EVENT)


def announce(queue: int) -> None:
    """Tell the threads that need to know that something has changed; on an asynchronous pool, all."""
    atomic_add(queue + EVENT, 1)
    if atomic_load(queue + SLEEPERS) != 0 and (iload(queue + CALLER) < 0 or atomic_load(queue + WAITING) != 0):
        futex_wake(queue + EVENT)


def forgive(queue: int) -> None:
    """Let what a wake-up takes fall, after a submission that has woken no thread."""
    arrival = atomic_load(queue + ARRIVAL)
    excess = arrival - atomic_load(queue + SOONEST)
    atomic_store(queue + ARRIVAL, arrival - (arrival >> 8 if excess <= 0 else (excess >> 3) + (arrival >> 8)))


def keep_apart(queue: int, room: int) -> int:
    """Take the caller's processor out of the set of the calling thread, which falls asleep; return what `rejoin` takes.

    ``room`` is the address of memory for three sets of processors.
    """
    processor = atomic_load(queue + CALLER)
    atomic_store(queue + APART, processor)
    return leave_out(processor, room)


def make_way(queue: int, room: int) -> None:
    """Leave the processor of the caller, which is woken from sleep now: it would wait there while this thread runs.

    ``room`` is the address of memory for two sets of processors.
    """
    processor = read_processor(room)
    if processor == atomic_load(queue + CALLER):
        leave(processor, room)


def arrive(queue: int, room: int) -> None:
    """Leave the processor of the caller after waking up, and note how long that took."""
    woken = atomic_load(queue + WOKEN)
    processor = read_processor(room)
    shares = processor == atomic_load(queue + CALLER) and not leave(processor, room)
    if woken == 0 or not compare_and_swap(queue + WOKEN, woken, 0):
        return
    taken = _LATEST if shares else min(_LATEST, nanoseconds(queue, read_ticks() - woken))
    before = atomic_load(queue + ARRIVAL)
    atomic_store(queue + ARRIVAL, before + (taken - before) // (4 if taken > before else 2))
    soonest = atomic_load(queue + SOONEST)
    atomic_store(queue + SOONEST, taken if taken < soonest else soonest + (taken - soonest) // _DRIFT)
