"""A stamp of the source files that lowering depends on, without reading them.

Python itself takes a module's compiled form if the time and size of its source are as before. A stamp also has the file's
number and the time at which the system has last changed it, which no program can set.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Final

import poolrt
from poolrt import cachestore, workers
from poolrt.cachestore.deferred_namedtuple import NamedTuple
from poolrt.cachestore.digests import sha256

#: Package -> its folders, and files of its own, that lowering is made of: the framework and what keys of primitives contain.
_ROOMS: Final = (
    (poolrt, ("coordinator", "graph", "graph/inference")),
    (workers, ("desc", "engines", "implementations", "kernels", "plans", "primitives")),
    (cachestore, ("",)),
)
#: Rooms whose folders count too.
_WHOLE: Final = frozenset({"desc", "implementations", "kernels"})
_KINDS: Final = (".py", ".cl")
#: Seconds before the start of this process since which a file may have been read before or after its change.
_MARGIN_S: Final = 1.0
_BEGUN: Final = time.time()


class SourceStamp(NamedTuple):
    """A digest of names, times and sizes, and the latest of the times, in seconds since the epoch."""

    digest: bytes
    latest: float

    @property
    def is_of_this_process(self) -> bool:
        """Whether no file has changed since this process began to import them."""
        return self.latest < _BEGUN - _MARGIN_S


def stamp_sources() -> SourceStamp:
    """Return the stamp of the present files. Raises OSError if they are not in folders."""
    found: list[str] = [sys.implementation.cache_tag or ""]
    latest = 0
    for package, rooms in _ROOMS:
        root = os.path.dirname(os.path.abspath(str(package.__file__)))
        for room in rooms:
            latest = max(latest, _scan(os.path.join(root, room), room in _WHOLE, found))
    return SourceStamp(sha256("\0".join(found).encode(errors="surrogateescape")).digest(), latest / 1e9)


def _scan(folder: str, whole: bool, found: list[str]) -> int:
    """Append the source files of a folder to ``found``; return the latest time of one, in nanoseconds."""
    latest = 0
    lines = [folder]
    with os.scandir(folder) as items:
        for item in items:
            if item.name.endswith(_KINDS):
                status = item.stat()
                changed = status.st_ctime_ns
                lines.append(f"{item.name} {status.st_mtime_ns} {changed} {status.st_size} {status.st_ino}")
                latest = max(latest, changed, status.st_mtime_ns)
            elif whole and item.name != "__pycache__" and item.is_dir():
                latest = max(latest, _scan(item.path, whole, found))
    lines.sort()
    found += lines
    return latest
