"""A byte that is 1 in the process that made it and 0 in all that are forked from it, however that is done.

Reading it takes a fraction of the time of `os.getpid`, which is a call of the system.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

#: The advice of madvise(2) that has the kernel clear pages in a forked process; the `mmap` module has no name for it.
_WIPE_ON_FORK: Final = 18


class ForkMark:
    """Whether this process is the one that made this object. ``byte[0]`` is 0 if `is_here` has to be asked."""

    __slots__ = ("_process", "byte")

    def __init__(self) -> None:
        self._process = os.getpid()
        #: 0 for ever where the kernel does not clear pages.
        self.byte: mmap.mmap | bytes = b"\0"
        try:
            page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            page.madvise(_WIPE_ON_FORK)
        except OSError:
            return
        page[0] = 1
        self.byte = page

    def is_here(self) -> bool:
        """Return whether this process is the one that made this object."""
        return bool(self.byte[0]) or os.getpid() == self._process
