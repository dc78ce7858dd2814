"""When threads of a native pool are woken, and where they run then.

**Waking.** To wake a thread takes some tens of microseconds, in which the others could have done short work. On a
synchronous pool the calling thread runs all tasks that no other thread takes. So it wakes others only for work that is
longer than waking takes, which each wake-up measures: tasks that lie ahead, and those of the last few submissions if
they were close together. A waiting thread spins for a while before it sleeps, since the next region is usually near.

**Place.** A thread that wakes often finds itself on the processor of the thread that woke it, where the two take turns
and the spinning of one delays the other. It then moves to another one that it may run on. If there is none, neither
spins. A thread that finds that it did not run for a while sleeps at once, and spins only within submissions for some
time: others need the processor.
"""

from __future__ import annotations

from typing import Final

from .atomics import (
    atomic_add,
    atomic_load,
    atomic_store,
    compare_and_swap,
    futex_wake,
    get_affinity,
    read_processor,
    read_ticks,
    set_affinity,
)
from .region_queue import (
    ARRIVAL,
    CALLER,
    CAPACITY,
    COUNT,
    EVENT,
    LINE,
    RATE,
    RING,
    SLEEPERS,
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
#: Bytes of a set of processors.
_SET: Final = 128


def nanoseconds(queue: int, ticks: int) -> int:
    """Return a time in nanoseconds."""
    return ticks * 1000 // iload(queue + RATE)


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
    atomic_store(queue + WOKEN, read_ticks())
    atomic_add(queue + WAKES, 1)
    futex_wake(queue + EVENT)


def announce(queue: int) -> None:
    """Tell the threads that need to know that something has changed; on an asynchronous pool, all."""
    atomic_add(queue + EVENT, 1)
    if atomic_load(queue + SLEEPERS) != 0 and (iload(queue + CALLER) < 0 or atomic_load(queue + WAITING) != 0):
        futex_wake(queue + EVENT)


def leave(processor: int, room: int) -> bool:
    """Move the calling thread to another processor, if it may run on one; return whether it has.

    ``room`` is the address of memory for two sets of processors.
    """
    size = get_affinity(room, _SET)
    if size <= 0 or processor >= 8 * size:
        return False
    others = 0
    for at in range(0, size, 8):
        word = iload(room + at)
        if at >> 3 == processor >> 6:
            word &= ~(1 << (processor & 63))
        others |= word
        atomic_store(room + _SET + at, word)
    if others == 0 or set_affinity(room + _SET, size) != 0:
        return False
    # The thread stays where it is now.
    set_affinity(room, size)
    return True


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
