"""Verbose output, after oneDNN's: one comma-separated line on standard error for each creation and each execution.

Lines end with a time in milliseconds; the first line of a process names the fields. One system call writes each line,
which is short enough for a pipe to take it in one piece, so that lines of threads and processes do not mix.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache
from typing import Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from .standard_error import has_standard_error

#: The environment variable with the level; `set_verbose` takes precedence.
VARIABLE: Final = "POOLRT_VERBOSE"
_STANDARD_ERROR: Final = 2
_TEMPLATE: Final = (
    "operation,engine,primitive,implementation,prop_kind,memory_descriptors,attributes,problem_desc,exec_time"
)
#: Source of a primitive -> the cache state in the line of its creation.
_FOUND: Final = {
    "memory": "create:cache_hit",
    "waited": "create:cache_hit",
    "derived": "create:from_cached_kernels",
    "files": "create:persistent_cache_hit",
    "prebuilt": "create:persistent_cache_hit",
    "redis": "create:persistent_cache_hit",
    "created": "create:cache_miss",
}


class _Lines(NamedTuple):
    creates: bool
    executes: bool


#: Name of a level -> its lines, as in oneDNN.
LEVELS: Final = {
    "0": _Lines(False, False),
    "1": _Lines(False, True),
    "2": _Lines(True, True),
    "profile": _Lines(True, True),
    "profile_create": _Lines(True, False),
    "profile_exec": _Lines(False, True),
}


class Verbose:
    """The level of a process, and the writer of its lines. Safe from many threads and after a fork.

    ``creates`` and ``executes`` say which lines to write. ``lost`` counts lines that could not be written: their reader may
    have gone, which must not fail a computation. ``chosen`` says whether a level was `set`. ``refused`` is the unknown level
    that the process began with, until one is set: then all lines are on, and the first raises an error.
    """

    __slots__ = ("_begun", "chosen", "creates", "executes", "level", "lost", "refused")

    def __init__(self, level: str = "0") -> None:
        self._begun: dict[int, object] = {}
        self.lost = 0
        self.refused: str | None = None
        self.set(level if level in LEVELS else "2")
        self.chosen = False
        if level not in LEVELS:
            self.refused = level

    def set(self, level: int | str) -> None:
        """Write the lines of a level from now on. Raises ValueError for an unknown one."""
        name = str(level)
        if isinstance(level, bool) or name not in LEVELS:
            raise ValueError(f"level: expect one of {', '.join(LEVELS)}, got {level!r}")
        self.level = name
        self.creates, self.executes = LEVELS[name]
        self.chosen = True
        self.refused = None

    def check(self) -> None:
        """Raise ValueError if the environment named an unknown level and none has been set since."""
        if self.refused is not None:
            raise ValueError(f"{VARIABLE}: expected one of {', '.join(LEVELS)}, got {self.refused!r}")

    def now(self) -> int:
        """Return the time in nanoseconds, for the beginning or the end of a creation. Raises as `check` does."""
        self.check()
        return time.perf_counter_ns()

    def created(self, text: str, source: str, nanoseconds: int) -> None:
        """Write the line of a created primitive; ``source`` is as in `Primitive.source`."""
        self._write(_FOUND[source], text, nanoseconds)

    def executed(self, text: str, nanoseconds: int) -> None:
        """Write the line of an execution."""
        self._write("exec", text, nanoseconds)

    def _write(self, operation: str, text: str, nanoseconds: int) -> None:
        line = f"poolrt_verbose,{operation},{text},{nanoseconds / 1e6:g}\n"
        if not has_standard_error():
            # The descriptor is closed, or belongs to another file.
            self.lost += 1
            return
        try:
            self._begin()
            os.write(_STANDARD_ERROR, line.encode())
        except OSError:
            self.lost += 1

    def _begin(self) -> None:
        """Write the first line of this process, once, by a call of its own: a pipe takes only short writes in one piece."""
        process, mine = os.getpid(), object()
        if process in self._begun or self._begun.setdefault(process, mine) is not mine:
            return
        try:
            os.write(_STANDARD_ERROR, f"poolrt_verbose,info,process:{process},template:{_TEMPLATE}\n".encode())
        except OSError:
            self._begun.pop(process, None)
            raise


@lru_cache(maxsize=1)
def writer() -> Verbose:
    """Return the writer of this process, unchecked."""
    return Verbose(os.environ.get(VARIABLE) or "0")


def verbose() -> Verbose:
    """Return the writer of this process, at first with the level of the environment.

    Raises ValueError if the environment names an unknown level, until `set_verbose` has named another.
    """
    found = writer()
    found.check()
    return found


def set_verbose(level: int | str) -> None:
    """Write lines about primitives to standard error from now on.

    ``0`` none, ``1`` or ``profile_exec`` one for each execution, ``profile_create`` one for each creation, ``2`` or
    ``profile`` both. Takes precedence over the environment variable ``POOLRT_VERBOSE``; pools that are opened later use it
    too, unless they have a level of their own. Raises ValueError for an unknown level.
    """
    writer().set(level)
