"""The compiled ends of rings in a client: what publishes an entry and wakes the worker, and what waits for its end."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from poolrt.workers.engines.object_loader import NativeKernel, load_object
from poolrt.workers.ipc.ring import SubmittingRing
from poolrt.workers.kernels.native.ring_words import ENTRY_WORDS, HEAD
from poolrt.workers.primitives.entry import parse_entry

#: As the type of native kernels, but the interpreter's lock is kept: this kernel never waits.
_KEEPING_LOCK: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
#: As the type of native kernels, for arguments that `ctypes.byref` has made: to check their types takes as long as the call.
_WITHOUT_TYPES: Final = ctypes.CFUNCTYPE(ctypes.c_int)


class RingEnds:
    """The two kernels of clients, from an entry. Raises what `parse_entry` and `load_object` raise, and IndexError."""

    __slots__ = ("kept", "submit", "wait")

    def __init__(self, entry: bytes) -> None:
        binaries = parse_entry(entry).binaries
        self.kept: tuple[NativeKernel, ...] = load_object(binaries[1]), load_object(binaries[2])
        self.submit = _KEEPING_LOCK(self.kept[0].address)
        self.wait = _WITHOUT_TYPES(self.kept[1].address)


class CompiledEnd:
    """The kernels bound to one ring, at an address, and its bell. One thread at a time submits, and one waits."""

    __slots__ = (
        "_bell",
        "_ends",
        "_entry",
        "_outcome",
        "_ring",
        "_room",
        "_submission",
        "_submit",
        "_wait",
        "_waiting",
    )

    def __init__(self, ends: RingEnds, ring: SubmittingRing, address: int, bell: int, spin_us: int) -> None:
        self._ends = ends
        self._ring = ring
        self._room = (ctypes.c_int64 * 8)()
        self._entry = (ctypes.c_int64 * ENTRY_WORDS)()
        self._outcome = ctypes.c_int64()
        entry, outcome = ctypes.addressof(self._entry), ctypes.addressof(self._outcome)
        self._submission = (ctypes.c_int64 * 8)(0, 0, address, entry, 0, ring.rung_address, bell, spin_us > 0)
        self._waiting = (ctypes.c_int64 * 8)(0, 0, address, 0, 1000 * spin_us, bell, ring.rung_address, outcome)
        room = ctypes.addressof(self._room)
        # As objects: made of numbers at each call, they take as long as the call.
        self._submit = tuple(map(ctypes.c_void_p, (room, room + 32, ctypes.addressof(self._submission))))
        self._wait = ctypes.byref(self._room), ctypes.byref(self._room, 32), ctypes.byref(self._waiting)

    def close(self) -> None:
        """Use the bell no more, whose descriptor may be another one's soon."""
        self._submission[6] = self._waiting[5] = -1

    def submit(self, sequence: int, model: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Publish an entry, for which there is room, and wake the worker if it sleeps."""
        count = HEAD + len(inputs) + len(outputs)
        number = self._ring.number
        _words(count).pack_into(
            self._entry, 0, sequence, number, model, len(inputs), len(outputs), 0, *inputs, *outputs
        )
        self._submission[4] = count
        self._ends.submit(*self._submit)

    def wait(self, sequence: int) -> int:
        """Wake the worker if it sleeps, and wait until an entry is done or something else has changed.

        Return why it ended (`ring_words`).
        """
        self._waiting[3] = sequence
        self._ends.wait(*self._wait)
        return self._outcome.value


@lru_cache(maxsize=ENTRY_WORDS)
def _words(count: int) -> Struct:
    return Struct(f"@{count}Q")
