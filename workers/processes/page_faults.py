"""The page faults of this process, which a first write to a page of a private mapping is one of.

If there was none in a while, no such page was written for the first time: to know that takes a microsecond, however large the
mapping is. A fault may be any other one too.
"""

from __future__ import annotations

import mmap
import os
from functools import lru_cache
from resource import RUSAGE_SELF, getrusage


def count_faults() -> int:
    """Return how many faults all threads of this process have had; -1 if this system does not count them."""
    if not _are_counted():
        return -1
    used = getrusage(RUSAGE_SELF)
    return used.ru_minflt + used.ru_majflt


@lru_cache(maxsize=1)
def _are_counted() -> bool:
    """Return whether a first write to a page that was read is counted: some sandboxes that act as Linux count nothing."""
    try:
        fd = os.memfd_create("poolrt-faults", os.MFD_CLOEXEC)
    except OSError:
        return False
    try:
        os.ftruncate(fd, mmap.PAGESIZE)
        with mmap.mmap(fd, mmap.PAGESIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as page:
            page[0]
            before = getrusage(RUSAGE_SELF).ru_minflt
            page[0] = 1
            return getrusage(RUSAGE_SELF).ru_minflt > before
    except OSError:
        return False
    finally:
        os.close(fd)
