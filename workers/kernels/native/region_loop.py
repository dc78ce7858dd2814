"""The loop of a threadpool's threads: take tasks of parallel regions in order and run them, without the interpreter.

A queue is memory of int64 words, each of the first ten on a cache line of its own:

0 regions that have ended · 1 regions submitted · 2 an event counter that every change of the other two increments (the
futex word) · 3 threads that sleep on it · 4 not 0: threads are to return · 5 address of the ring · 6 number of regions
that the ring holds, a power of two · 7 regions that had ended when their owner last released their resources · 8 address
of the slots of nested regions · 9 number of slots to look at, 0 if no nested region is under way

A record of the ring is a cache line: the kernel's entry point, the address of an array of addresses of packed
arguments, the number of tasks, the address of a word for what `call_kernel` returns if a task fails; the next task, the
tasks that have ended. The next task carries the low half of the region's number in its upper half: a thread that was
delayed can never take a task of a later region in the same record.

Regions run one after the other; the thread that ends the last task of one opens the next. A waiting thread spins for
some microseconds, since the next region is usually near, and then sleeps.

A slot is such a record, for a region that a task has submitted and waits for; its upper half is a generation. The slot
also has the address of the slot in whose task it was opened, or `OF_RING`, or `IN_PLACE`. Threads of the pool without
a task of the ring run tasks of any slot. A thread that waits for a region runs only tasks of regions nested in it:
others might wait for that thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from numba import njit
from numba.core import types

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
)
from .vec import iload

#: Bytes of a cache line: distance of the queue's words, and size of a record.
LINE: Final = 64
ENDED, SUBMITTED, EVENT, SLEEPERS, STOP, RING, CAPACITY, RELEASED, SLOTS, OPEN = (LINE * i for i in range(10))
FUNCTION, BLOBS, COUNT, STATUS, NEXT, DONE, PARENT = (8 * i for i in range(7))
#: What a slot has instead of a parent: opened by a task of the ring, or of a region that its caller runs alone.
OF_RING: Final = 1
IN_PLACE: Final = 2
#: Nested regions that are under way at once; further ones run in place.
SLOT_COUNT: Final = 64
#: No task to take, and no region's number: before a record changes, so that a delayed thread finds no mixture.
_NONE: Final = -1
_TASK: Final = 0xFFFFFFFF
#: Longest sleep, in milliseconds, before a thread that waits for a region returns, to look after signals.
SLICE_MS: Final = 100


def make(isa: str, part: str) -> tuple[Callable[..., None], Any]:
    """Return a kernel.

    The ``loop`` of a thread; ``submit``, which appends regions and wakes threads; ``nest``, which runs a nested region; or a
    ``clock``.
    """
    return {"loop": _loop, "submit": _submit, "nest": _nest, "clock": _clock}[part]()


@njit
def _run_task(record: int, place: int) -> bool:
    """Run the task that the caller has taken; return whether it was the last of its region to end."""
    count = iload(record + COUNT)
    blob = iload(iload(record + BLOBS) + (place & _TASK) * 8)
    failure = call_kernel(iload(record + FUNCTION), blob)
    if failure != 0:
        atomic_store(iload(record + STATUS), failure)
    return atomic_add(record + DONE, 1) + 1 == count


@njit
def _announce(queue: int) -> None:
    """Tell all threads that something has changed."""
    atomic_add(queue + EVENT, 1)
    if atomic_load(queue + SLEEPERS) != 0:
        futex_wake(queue + EVENT)


@njit
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


@njit
def _help(queue: int, owner: int) -> bool:
    """Run a task of a nested region of ``owner``, as `_is_nested_in` takes it; return whether there was one."""
    for index in range(atomic_load(queue + OPEN)):
        record = iload(queue + SLOTS) + index * LINE
        place = atomic_load(record + NEXT)
        if (place & _TASK) >= atomic_load(record + COUNT) or not _is_nested_in(record, owner):
            continue
        # If the slot's region is another one by now, so is its generation.
        if compare_and_swap(record + NEXT, place, place + 1):
            if _run_task(record, place):
                _announce(queue)
            return True
    return False


def _clock() -> tuple[Callable[..., None], Any]:
    """Return a task that writes the monotonic time, two int64 of seconds and nanoseconds, to the address in its argument."""

    def clock(begin: int, end: int, address: int) -> None:
        read_clock(address)

    return clock, types.void(*[types.int64] * 3)


def _loop() -> tuple[Callable[..., None], Any]:
    """Return the loop.

    Arguments: the queue's address; the number of regions that must have ended for the call to return (negative: only
    after a request to stop, or if a slice of time was idle and there are ended regions to release); 0 to wait only, 1 to
    run tasks of the ring meanwhile and those nested in them, 2 to run all nested ones too; and how often to look before
    sleeping. A call that waits for regions may return early; the caller looks and calls again.
    """

    def loop(begin: int, end: int, queue: int, until: int, helps: int, spins: int) -> None:
        ring = iload(queue + RING)
        mask = iload(queue + CAPACITY) - 1
        looks = 0
        while True:
            event = atomic_load(queue + EVENT)
            ended = atomic_load(queue + ENDED)
            if until >= 0 and ended >= until:
                return
            if until < 0 and atomic_load(queue + STOP) != 0:
                return
            took = False
            if helps != 0 and ended < atomic_load(queue + SUBMITTED):
                record = ring + (ended & mask) * LINE
                place = atomic_load(record + NEXT)
                if (place >> 32) == (ended & 0x7FFFFFFF) and (place & _TASK) < iload(record + COUNT):
                    took = True
                    if compare_and_swap(record + NEXT, place, place + 1) and _run_task(record, place):
                        atomic_store(queue + ENDED, ended + 1)
                        _announce(queue)
            if helps != 0 and not took and atomic_load(queue + OPEN) != 0:
                took = _help(queue, OF_RING if helps == 1 else 0)
            if took:
                looks = 0
                continue
            looks += 1
            if looks < spins:
                pause()
                continue
            atomic_add(queue + SLEEPERS, 1)
            if atomic_load(queue + EVENT) == event:
                futex_wait(queue + EVENT, event, SLICE_MS)
            atomic_add(queue + SLEEPERS, -1)
            looks = 0
            if atomic_load(queue + EVENT) == event and (until >= 0 or atomic_load(queue + RELEASED) < ended):
                return

    return loop, types.void(*[types.int64] * 6)


def _submit() -> tuple[Callable[..., None], Any]:
    """Return the kernel that appends regions; it waits while the ring is full. One thread at a time may call it.

    Arguments: the queue's address; the address of records of four int64 (entry point, address of the array of addresses
    of packed arguments, number of tasks, at least 1, address of the word that records a failure); how many. None only
    wakes the threads.
    """

    def submit(begin: int, end: int, queue: int, regions: int, count: int) -> None:
        ring = iload(queue + RING)
        capacity = iload(queue + CAPACITY)
        if count == 0:
            atomic_add(queue + EVENT, 1)
            futex_wake(queue + EVENT)
        for index in range(count):
            number = atomic_load(queue + SUBMITTED)
            while number - atomic_load(queue + ENDED) >= capacity:
                event = atomic_load(queue + EVENT)
                if number - atomic_load(queue + ENDED) >= capacity:
                    atomic_add(queue + SLEEPERS, 1)
                    futex_wait(queue + EVENT, event, SLICE_MS)
                    atomic_add(queue + SLEEPERS, -1)
            record = ring + (number & (capacity - 1)) * LINE
            region = regions + index * 32
            atomic_store(record + NEXT, _NONE)
            for word in range(0, 32, 8):
                atomic_store(record + word, iload(region + word))
            atomic_store(record + DONE, 0)
            atomic_store(record + NEXT, (number & 0x7FFFFFFF) << 32)
            atomic_store(queue + SUBMITTED, number + 1)
            _announce(queue)

    return submit, types.void(*[types.int64] * 5)


def _nest() -> tuple[Callable[..., None], Any]:
    """Return the kernel that runs a nested region on the calling thread, together with idle ones.

    Arguments: the queue's address; the slot's; that of a region's four int64, as for submitting; a generation above 0, of
    which the slot has had none; what the slot was opened in, see above; and how often to look before sleeping. A call may
    return early; the caller looks and calls again with the same arguments.
    """

    def nest(
        begin: int, end: int, queue: int, record: int, region: int, generation: int, parent: int, spins: int
    ) -> None:
        if (atomic_load(record + NEXT) >> 32) != generation:
            atomic_store(record + NEXT, _NONE)
            for word in range(0, 32, 8):
                atomic_store(record + word, iload(region + word))
            atomic_store(record + DONE, 0)
            atomic_store(record + PARENT, parent)
            atomic_store(record + NEXT, generation << 32)
            _announce(queue)
        count = iload(record + COUNT)
        looks = 0
        while True:
            event = atomic_load(queue + EVENT)
            if atomic_load(record + DONE) == count:
                return
            place = atomic_load(record + NEXT)
            if (place & _TASK) < count:
                if compare_and_swap(record + NEXT, place, place + 1):
                    _run_task(record, place)
                looks = 0
                continue
            if _help(queue, record):
                looks = 0
                continue
            looks += 1
            if looks < spins:
                pause()
                continue
            atomic_add(queue + SLEEPERS, 1)
            if atomic_load(queue + EVENT) == event:
                futex_wait(queue + EVENT, event, SLICE_MS)
            atomic_add(queue + SLEEPERS, -1)
            looks = 0
            if atomic_load(queue + EVENT) == event:
                return

    return nest, types.void(*[types.int64] * 8)
