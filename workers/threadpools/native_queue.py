"""The queue that the threads of a native pool share: regions in memory, and the compiled loop over them."""

from __future__ import annotations

import ctypes
import heapq
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from ..engines.object_loader import NativeKernel
from .interface import Region
from .kernel_call import bind_call
from .python_tasks import python_region
from .regions import PackedRegions

_LINE: Final = 64
#: Words of the queue, each on a cache line of its own, before the ring.
_HEAD: Final = 13
#: Regions that the ring holds before a thread that submits has to wait, a power of two.
CAPACITY: Final = 1024
#: Seconds that a thread outside of tasks waits before it adds a region to more of them than the ring holds.
PATIENCE_S: Final = 1.0
#: Submissions that a mover moves into the ring at most, while tasks submit.
_MOVED: Final = 16
#: Slots of nested regions, and generations of one, which begin at 1.
SLOT_COUNT: Final = 64
_GENERATIONS: Final = 0x7FFFFFFF
#: What regions are nested in that are opened by tasks of the ring, or of a region that its caller runs alone.
OF_RING: Final = 1
IN_PLACE: Final = 2
#: Microseconds that a thread spins for the next region of a submission, or for the end of one.
_SPIN_WITHIN_US: Final = 200
#: The same on an asynchronous pool, whose threads cannot know how far the next region is.
_SPIN_ASYNCHRONOUS_US: Final = 30
#: Nanoseconds from a wake-up to the first task, until the first one is measured.
_ARRIVAL_NS: Final = 50_000
#: Seconds in which the rate of the time stamp counter is measured.
_MEASURED_S: Final = 0.001
#: Words of the queue, each on a cache line of its own.
_ENDED, _SUBMITTED, _, _, _STOP, _RING, _RING_SIZE, _RELEASED, _SLOTS, _OPEN, _, _PLACE, _TIMES = range(_HEAD)
#: Words behind those two: the processor of the caller, the time of an arrival, how often threads were woken, the least time.
_CALLER, _ARRIVAL, _WAKES, _SOONEST = 0, 3, 6, 7
#: The processor of the caller before the first one: none.
_NOWHERE: Final = 1 << 20
#: Words of a slot: the number of tasks, the next one with the generation in its upper half, those that have ended, and one more
#: when all have.
_COUNT, _NEXT, _DONE = 2, 4, 5


class _Piece:
    """Regions ``begin`` to ``end`` of a submission; in the ring, the last has the number ``end_number`` - 1."""

    __slots__ = ("begin", "end", "end_number", "is_mover", "regions")

    def __init__(self, regions: PackedRegions, begin: int, end: int, is_mover: bool = False) -> None:
        self.regions = regions
        self.begin = begin
        self.end = end
        self.is_mover = is_mover
        self.end_number = 0

    def __len__(self) -> int:
        return self.end - self.begin

    def part(self, begin: int, end: int) -> _Piece:
        """Return the regions from one of this piece to another."""
        return _Piece(self.regions, self.begin + begin, self.begin + end, self.is_mover)


class _Mark:
    """A region of one native task, behind those that a thread waits for."""

    def __init__(self, clock: NativeKernel) -> None:
        self._time = (ctypes.c_int64 * 2)(-1, -1)
        blob = (ctypes.c_int64 * 3)(0, 1, ctypes.addressof(self._time))
        self.regions = PackedRegions([Region(clock.address, [ctypes.addressof(blob)], keep=(self._time, blob))])

    @property
    def has_ended(self) -> bool:
        """Whether the task has run."""
        return self._time[1] >= 0


class NativeQueue:
    """Regions in the order of their submission. A thread that still runs keeps the queue alive without its pool.

    The queue keeps what an asynchronous region needs until the region has ended. The next thread that submits or waits
    releases it, or a thread of the pool once the pool has been idle for a tenth of a second.

    What a task submits to an asynchronous pool comes behind the task's region and before those submitted after that one,
    as if the region contained it. While a task runs, no later region can begin, so those in the ring can be taken out: they
    are in a list, behind those of the task, and a region of one task, the *mover*, moves them into the ring. So are
    regions that the ring has no room for: a task never waits for room.
    """

    def __init__(
        self,
        loop: NativeKernel,
        submit: NativeKernel,
        nest: NativeKernel,
        clock: NativeKernel,
        asynchronous: bool = True,
        spin_us: int = 0,
    ) -> None:
        self._loop, self._submit, self._nest = loop, submit, nest
        self._clock = clock
        #: Held while regions are submitted.
        self.lock = threading.Lock()
        #: What is in the ring, or has just ended, oldest first.
        self._kept: deque[_Piece] = deque()
        #: Held by a thread outside of tasks that submits, also while it waits for room.
        self._turn = threading.Lock()
        #: What tasks of the region under way have submitted, and what comes behind that, not in the ring yet.
        self._fresh: list[_Piece] = []
        self._beyond: deque[_Piece] = deque()
        #: The number of regions in both.
        self._waiting = 0
        #: Whether a mover is in the ring; then it is the last region there.
        self._has_mover = False
        self._error: BaseException | None = None
        self._free_slots = list(range(SLOT_COUNT))
        self._open_slots: set[int] = set()
        self._slots_lock = threading.Lock()
        size = _LINE * (_HEAD + CAPACITY + SLOT_COUNT)
        self._memory = (ctypes.c_char * (size + _LINE))()
        start = -(-ctypes.addressof(self._memory) // _LINE) * _LINE
        self._words = [ctypes.c_int64.from_address(start + _LINE * i) for i in range(_HEAD)]
        self._start = start
        self._words[_RING].value = start + _LINE * _HEAD
        self._words[_SLOTS].value = start + _LINE * (_HEAD + CAPACITY)
        self._words[_RING_SIZE].value = CAPACITY
        self._place = (ctypes.c_int64 * 8).from_address(start + _LINE * _PLACE)
        self._place[_CALLER] = -1 if asynchronous else _NOWHERE
        self._place[_ARRIVAL] = self._place[_SOONEST] = _ARRIVAL_NS
        rate = _ticks_of_a_microsecond(submit)
        within = _SPIN_ASYNCHRONOUS_US if asynchronous else _SPIN_WITHIN_US
        after = _SPIN_ASYNCHRONOUS_US if asynchronous else spin_us
        times: list[ctypes.c_int64 | int] = [rate, rate * within, rate * after]
        (ctypes.c_int64 * 3).from_address(start + _LINE * _TIMES)[:] = times
        #: The arguments of `perform`'s submissions, of which there is one at a time; where they end; and their call.
        self._performed = (ctypes.c_int64 * 6)(0, 1, start, 0, 0, 0)
        self._performed_room = (ctypes.c_int64 * 8)()
        room, packed = ctypes.addressof(self._performed_room), ctypes.addressof(self._performed)
        self._perform = bind_call(submit.address, room, packed)

    @property
    def wake_ups(self) -> int:
        """How often a thread of a synchronous pool was woken for work."""
        return self._place[_WAKES]

    @property
    def ended(self) -> int:
        """The number of regions that have ended."""
        return self._words[_ENDED].value

    @property
    def submitted(self) -> int:
        """The number of regions submitted."""
        return self._words[_SUBMITTED].value

    def submit(self, regions: PackedRegions, begin: int, count: int) -> None:
        """Append ``count`` regions from number ``begin`` on. The caller holds `lock`, and keeps them until they have ended.

        On a synchronous pool it needs no lock, and runs tasks until they have ended, or a slice of time was idle.
        """
        self._call(self._submit, self._start, regions.address_of(begin), count, 0)

    def perform(self, regions: PackedRegions, begin: int, count: int) -> bool:
        """Do what `submit` does, on a synchronous pool, in less time; return whether all regions have ended.

        One thread at a time may call it.
        """
        performed = self._performed
        performed[3] = regions.address_of(begin)
        performed[4] = count
        performed[5] = regions.trials_of(begin)
        if self._perform():
            raise RuntimeError("the region loop failed")
        return self._words[_ENDED].value == self._words[_SUBMITTED].value

    def submit_and_keep(self, regions: PackedRegions) -> None:
        """Append regions behind all others and keep them until they have ended. The caller is no task of the pool.

        It waits while there are too many, but no longer than `PATIENCE_S` for a region: two pools whose tasks submit to each
        other must not wait for one another.
        """
        begin, limit = 0, time.monotonic() + PATIENCE_S
        with self._turn:
            while True:
                with self.lock:
                    ended = self._take_ended()
                    before, begin = begin, self._append(regions, begin, time.monotonic() > limit)
                # Outside the lock: a finalizer may use the pool.
                del ended
                self._run_rest()
                if begin == len(regions):
                    return
                if begin > before:
                    limit = time.monotonic() + PATIENCE_S
                # Without the lock, which tasks need before they end.
                self.run(self.ended + 1, helps=0)

    def submit_within(self, regions: PackedRegions) -> None:
        """Submit regions of a task of the region under way; never waits."""
        with self.lock:
            ended = self._take_ended()
            self._fresh.append(_Piece(regions, 0, len(regions)))
            self._waiting += len(regions)
            if len(self._fresh) == 1:
                self._take_out(self.ended + 1)
                self._submit_mover()
        del ended

    def wait(self) -> None:
        """Return when everything submitted so far has ended, and what its tasks submit. The caller is no task of the pool."""
        if self.ended == self.submitted and not self._waiting:
            return
        mark = _Mark(self._clock)
        with self.lock:
            ended = self._take_ended()
            self._append(mark.regions, 0, whole=True)
        del ended
        while not mark.has_ended:
            self._run_rest()
            self.run(max(mark.regions.last, self.ended + 1), helps=0)

    @contextmanager
    def slot(self) -> Iterator[int]:
        """Open a slot for nested regions that run one after the other; return its address, 0 if none is free."""
        with self._slots_lock:
            number = heapq.heappop(self._free_slots) if self._free_slots else -1
            self._open_slots.add(number)
            self._words[_OPEN].value = max(self._open_slots) + 1
        try:
            yield self._words[_SLOTS].value + _LINE * number if number >= 0 else 0
        finally:
            with self._slots_lock:
                self._open_slots.discard(number)
                if number >= 0:
                    heapq.heappush(self._free_slots, number)
                self._words[_OPEN].value = max(self._open_slots, default=-1) + 1

    def nest(self, slot: int, regions: PackedRegions, number: int, parent: int) -> None:
        """Run a region in a slot on the calling thread, together with idle ones.

        ``parent`` is the slot of the region in whose task this one is, or `OF_RING`, or `IN_PLACE`. An interrupt is raised when
        the region has ended: before, other threads use its data.
        """
        place, count, done = (ctypes.c_int64.from_address(slot + 8 * word) for word in (_NEXT, _COUNT, _DONE))
        generation = max(place.value >> 32, 0) % _GENERATIONS + 1
        record = regions.address_of(number)
        interrupt: BaseException | None = None
        while True:
            try:
                while place.value >> 32 != generation or done.value <= count.value:
                    self._call(self._nest, self._start, slot, record, generation, parent)
                break
            except BaseException as error:  # noqa: BLE001 - raised below
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def run(self, until: int, helps: int) -> None:
        """Return when ``until`` regions have ended or a slice of time is over.

        Meanwhile it only waits if ``helps`` is 0, runs tasks and those nested in them if it is 1, and all nested ones if 2.
        """
        self._call(self._loop, self._start, until, helps)

    def serve(self) -> None:
        """Run tasks until `stop`, and those that are queued then."""
        while not self._words[_STOP].value:
            self.run(-1, helps=2)
            # Without waiting: the lock's holder may wait for this thread to make room, or is about to release everything.
            if self.lock.acquire(blocking=False):
                try:
                    ended = self._take_ended()
                finally:
                    self.lock.release()
                del ended
        while self.ended < self.submitted:
            self.run(self.submitted, helps=2)

    def release(self) -> BaseException | None:
        """Release what ended regions needed; return the first error since the last call, if there is one."""
        with self.lock:
            ended = self._take_ended()
            error, self._error = self._error, None
        del ended
        return error

    def stop(self) -> None:
        """Let the threads return once the queue is empty."""
        self._words[_STOP].value = 1
        self._call(self._submit, self._start, 0, 0, 0)

    def _run_rest(self) -> None:
        """Run what is in the ring if threads were told to return: they may not see what was submitted at that moment."""
        while self._words[_STOP].value and self.ended < self.submitted:
            self.run(self.submitted, helps=2)

    def _append(self, regions: PackedRegions, begin: int, whole: bool) -> int:
        """Append regions from a number on as far as there is room, or the ``whole`` rest; return the number of the next one.

        The caller holds `lock`.
        """
        piece = _Piece(regions, begin, len(regions))
        count = len(piece)
        if not self._waiting:
            piece = self._fill(piece)
            count = len(piece) if whole else 0
        elif not whole:
            count = max(0, min(count, CAPACITY - (self.submitted - self.ended) - self._waiting))
        if count:
            self._beyond.append(piece.part(0, count))
            self._waiting += count
            if not self._has_mover:
                self._submit_mover()
        return piece.begin + count

    def _fill(self, piece: _Piece) -> _Piece:
        """Submit and keep as many regions as the ring has room for; return the rest."""
        # One place is left for the mover.
        count = min(CAPACITY - 1 - (self.submitted - self.ended), len(piece))
        if count <= 0:
            return piece
        placed = piece.part(0, count)
        placed.end_number = placed.regions.last = self.submitted + count
        self._kept.append(placed)
        self.submit(piece.regions, piece.begin, count)
        return piece.part(count, len(piece))

    def _take_out(self, number: int) -> None:
        """Move what is in the ring from a region's number on back to the front of the list; none of it can have begun."""
        while self._kept and self._kept[-1].end_number > number:
            piece = self._kept.pop()
            left = max(0, len(piece) - (piece.end_number - number))
            if left:
                kept = piece.part(0, left)
                kept.end_number = number
                self._kept.append(kept)
            out = piece.part(left, len(piece))
            if not out.is_mover:
                self._beyond.appendleft(out)
                self._waiting += len(out)
        self._has_mover = False
        self._words[_SUBMITTED].value = number

    def _submit_mover(self) -> None:
        mover = _Piece(PackedRegions([python_region(1, self._move, threading.local())]), 0, 1, is_mover=True)
        mover.end_number = self.submitted + 1
        self._kept.append(mover)
        self._has_mover = True
        self.submit(mover.regions, 0, 1)

    def _move(self, _i: int, _n: int) -> None:
        """Move regions into the ring, whose other regions have all ended; few if tasks submit, which take them out again."""
        with self.lock:
            self._has_mover = False
            most = _MOVED if self._fresh else CAPACITY
            self._beyond.extendleft(reversed(self._fresh))
            self._fresh.clear()
            for _ in range(min(most, len(self._beyond))):
                piece = self._beyond.popleft()
                rest = self._fill(piece)
                self._waiting -= len(piece) - len(rest)
                if len(rest):
                    self._beyond.appendleft(rest)
                    break
            if self._beyond:
                self._submit_mover()

    def _take_ended(self) -> list[PackedRegions]:
        """Remove and return the ended regions, for the caller to drop; remember their first error."""
        ended, found = self.ended, []
        while self._kept and self._kept[0].end_number <= ended:
            regions = self._kept.popleft().regions
            error = regions.take_failure()
            self._error = self._error or error
            found.append(regions)
        self._words[_RELEASED].value = ended
        return found

    @staticmethod
    def _call(kernel: NativeKernel, *arguments: int) -> None:
        room = (ctypes.c_int64 * 8)()
        start = ctypes.addressof(room)
        blob = (ctypes.c_int64 * (2 + len(arguments)))(0, 1, *arguments)
        if kernel.function(start, start + 32, ctypes.addressof(blob)):
            raise RuntimeError("the region loop failed")


@lru_cache(maxsize=1)
def _ticks_of_a_microsecond(submit: NativeKernel) -> int:
    """Return the rate of the time stamp counter that kernels read; to measure it takes a millisecond."""
    begin = _read(submit)
    time.sleep(_MEASURED_S)
    end = _read(submit)
    return max(1, round((end[1] - begin[1]) * 1000 / (end[0] - begin[0])))


def _read(submit: NativeKernel) -> tuple[int, int]:
    """Return the time in nanoseconds and in ticks, read closely after one another."""
    ticks = ctypes.c_int64()
    found: list[tuple[int, int, int]] = []
    for _ in range(3):
        before = time.perf_counter_ns()
        NativeQueue._call(submit, 0, ctypes.addressof(ticks), -1, 0)
        after = time.perf_counter_ns()
        found.append((after - before, (before + after) // 2, ticks.value))
    return min(found)[1:]
