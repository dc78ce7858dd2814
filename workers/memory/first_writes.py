"""The first writes of a process to pages of an arena, each of which is a page fault: as few calls of the system instead.

Pages that nothing has written to are written by pwrite(2), which neither clears them first nor maps them here. Others are mapped
in one call before they are written. Both are for long buffers; what else a process writes has its faults.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from .arena_view import ArenaView

#: Bytes of the pieces of an arena that are known to be mapped here or not.
_PIECE: Final = 256 * 1024
#: Bytes from which on writes are looked at.
_LONG: Final = 4 * _PIECE


class FirstWrites:
    """Knows to which pieces of an arena this process has written. ``fd`` is its memory, -1 if only `prepare` is used.

    Threads may use it without a lock: what one of them does not see of another one costs a call, and nothing else.
    """

    __slots__ = ("_fd", "_mapped", "_view")

    def __init__(self, view: ArenaView, fd: int = -1) -> None:
        self._view = view
        self._fd = fd
        self._mapped = bytearray(-(-view.nbytes // _PIECE))

    def prepare(self, offset: int, nbytes: int) -> None:
        """Map the pages of some bytes, all of which are about to be written."""
        if nbytes < _LONG:
            return
        mapped = self._mapped
        begin, end = -(-offset // _PIECE), (offset + nbytes) // _PIECE
        while (begin := mapped.find(0, begin, end)) >= 0:
            stop = mapped.find(1, begin, end)
            if stop < 0:
                stop = end
            # Also if it has failed, as on old kernels: there are faults then.
            self._view.populate(begin * _PIECE, (stop - begin) * _PIECE)
            mapped[begin:stop] = b"\1" * (stop - begin)
            begin = stop

    def write_new(self, data: memoryview, offset: int) -> bool:
        """Write bytes to pages that nothing has written to; False if they are others.

        Then nothing, or a part of it, was written.
        """
        nbytes = data.nbytes
        if nbytes < _LONG or self._fd < 0 or not self._is_new(offset, nbytes):
            return False
        try:
            done = 0
            while done < nbytes:
                done += os.pwrite(self._fd, data[done:], offset + done)
        except OSError:
            return False  # memory is short, which a fault would find too
        return True

    def _is_new(self, offset: int, nbytes: int) -> bool:
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA) >= offset + nbytes
        except OSError as error:
            return error.errno == errno.ENXIO  # no page from there on
