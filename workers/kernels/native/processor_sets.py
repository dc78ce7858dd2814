"""The set of processors that the calling thread may run on: one of them is left out for a while.

``room`` is the address of memory for two sets of processors, or three: they are the same ones until `rejoin`.
"""

from __future__ import annotations

from typing import Final

from .atomics import atomic_store, get_affinity, set_affinity
from .vec import iload

#: Bytes of a set of processors.
_SET: Final = 128


def leave_out(processor: int, room: int) -> int:
    """Take a processor out of the set of those that the calling thread may run on; return the bytes of a set, 0 if it has not.

    ``room`` is the address of memory for two sets of processors: it has the set before and after.
    """
    size = get_affinity(room, _SET)
    if size <= 0 or processor < 0 or processor >= 8 * size:
        return 0
    others = 0
    for at in range(0, size, 8):
        word = iload(room + at)
        if at >> 3 == processor >> 6:
            word &= ~(1 << (processor & 63))
        others |= word
        atomic_store(room + _SET + at, word)
    at = (processor >> 6) << 3
    if others == 0 or iload(room + at) == iload(room + _SET + at) or set_affinity(room + _SET, size) != 0:
        return 0
    return size


def rejoin(room: int, size: int) -> None:
    """Put the set back that `leave_out` has changed, unless it is another one by now; ``room`` has place for three."""
    now = room + 2 * _SET
    if size == 0 or get_affinity(now, _SET) != size:
        return
    for at in range(0, size, 8):
        if iload(now + at) != iload(room + _SET + at):
            return
    set_affinity(room, size)


def leave(processor: int, room: int) -> bool:
    """Move the calling thread to another processor, if it may run on one; return whether it has.

    ``room`` is the address of memory for two sets of processors.
    """
    size = leave_out(processor, room)
    if size == 0:
        return False
    # The thread stays where it is now.
    set_affinity(room, size)
    return True
