"""The compiled loop with which a worker serves rings: its memory, and what it leaves for Python.

`poolrt.workers.kernels.native.ring_words` describes the memory, `ring_ends` beside it the loop. It serves entries that name a
plan on one thread, and sleeps. Python serves all others, and handles messages, errors and wrong entries.

Guarantees: the loop uses no memory of a model or ring after `renew` was called without it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..engines.object_loader import NativeKernel
from ..ipc.ring import ServingRing
from ..kernels.native.ring_words import (
    BENCH_ARENA,
    BENCH_COUNT,
    BENCH_FAILURE,
    BENCH_NBYTES,
    BENCH_PLACE,
    BENCH_PLACES,
    BENCH_REGION,
    BENCH_ROUTINE,
    BENCH_SLEEPS,
    BENCH_SPIN,
    BENCH_WATCHED,
    BENCH_WATCHED_COUNT,
    BENCH_WORDS,
)
from ..memory.arena_view import ArenaView
from ..plans.routine import Routine

#: POLLIN in a record of poll(2), whose lower half is a descriptor; -1 for none.
_READABLE: Final = 1 << 32
_NONE: Final = 0xFFFFFFFF


class Served(NamedTuple):
    """A ring for the loop: where it is, its bell or -1 once its client has closed that, and routines by the number of a model.

    With each routine: the bytes of each input, and of each output.
    """

    ring: ServingRing
    address: int
    bell: int
    routines: Mapping[int, tuple[Routine, Sequence[int], Sequence[int]]]


class RingLoop:
    """The loop of one worker. ``serve`` is its kernel; it spins for ``spin_us`` microseconds at most."""

    def __init__(self, serve: NativeKernel, arena: ArenaView, spin_us: int) -> None:
        self._kernel = serve
        self._arena = arena
        self._bench = (ctypes.c_int64 * BENCH_WORDS)()
        self._outcome = ctypes.c_int64()
        self._blob = (ctypes.c_int64 * 4)(0, 0, ctypes.addressof(self._bench), ctypes.addressof(self._outcome))
        self._room = (ctypes.c_int64 * 8)()
        room = ctypes.addressof(self._room)
        self._arguments = room, room + 32, ctypes.addressof(self._blob)
        #: The routines by their addresses, and all that the bench refers to.
        self._routines: dict[int, Routine] = {}
        self._kept: list[object] = []
        self._put(BENCH_ARENA, arena.address)
        self._put(BENCH_NBYTES, arena.nbytes)
        self._put(BENCH_SPIN, 1000 * spin_us)

    def renew(self, served: Sequence[Served], others: Sequence[int]) -> None:
        """Serve these rings from now on, and return for these other descriptors too."""
        kept: list[object] = []
        known: dict[int, Routine] = {}

        def words(values: Sequence[int]) -> int:
            memory = (ctypes.c_int64 * max(1, len(values)))(*values)
            kept.append(memory)
            return ctypes.addressof(memory)

        places: list[int] = []
        for ring, address, bell, routines in served:
            models: list[int] = []
            for number, (routine, inputs, outputs) in routines.items():
                moves = routine.words()
                sizes = words([*inputs, *outputs])
                regions = routine.regions.address_of(0), len(routine.regions)
                where = words([len(inputs), len(outputs), sizes, words(moves), len(moves) // 3, *regions])
                models += [number, where]
                known[where] = routine
            places += [address, ring.number, ring.counts_address, bell, words(models), len(routines)]
            kept.append(ring)
        watched = [_READABLE | (each.bell if each.bell >= 0 else _NONE) for each in served]
        watched += [_READABLE | fd for fd in others]
        self._put(BENCH_PLACES, words(places))
        self._put(BENCH_COUNT, len(served))
        self._put(BENCH_WATCHED, words(watched))
        self._put(BENCH_WATCHED_COUNT, len(watched))
        self._kept, self._routines = kept, known

    def run(self, *, sleeps: bool) -> int:
        """Serve entries, and sleep in between if it may; return why it ended (`ring_words`)."""
        self._put(BENCH_SLEEPS, sleeps)
        self._kernel.function(*self._arguments)
        return self._outcome.value

    @property
    def place(self) -> int:
        """The number of the ring that the last outcome is about."""
        return self._bench[BENCH_PLACE // 8]

    def error(self) -> BaseException:
        """Return the error of the entry that has failed."""
        bench = self._bench
        regions = self._routines[bench[BENCH_ROUTINE // 8]].regions
        return regions[bench[BENCH_REGION // 8]].failure(bench[BENCH_FAILURE // 8])

    def _put(self, place: int, value: int) -> None:
        self._bench[place // 8] = value
