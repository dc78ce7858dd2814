"""Act in the middle of what a thread does: before any line of Python of some files that it executes, as other threads may."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import poolrt

#: The folders of the package as imports find them.
PACKAGE: Final = str(Path(poolrt.__file__).parent)


class Lines:
    """Counts lines that the calling thread executes, and acts before one of them."""

    def __init__(self, stop: int, act: Callable[[], object], files: tuple[str, ...]) -> None:
        self.count = 0
        #: File and number of the line that it has stopped at.
        self.where = ""
        self._stop = stop
        self._act = act
        self._files = files

    def trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        """Trace a frame: see `sys.settrace`."""
        if not frame.f_code.co_filename.startswith(self._files):
            return None
        if event == "line":
            self.count += 1
            if self.count == self._stop:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self._act()  # nothing is traced meanwhile
        return self.trace


@contextmanager
def at_line(stop: int, act: Callable[[], object], *files: str) -> Iterator[Lines]:
    """Call ``act`` before the line of a number that this thread executes in the block, counted from 1.

    Lines of files count whose paths begin with one of ``files``, which are relative to the package; by default all of its files.
    """
    lines = Lines(stop, act, tuple(f"{PACKAGE}/{file}" for file in files or ("",)))
    before = sys.gettrace()
    sys.settrace(lines.trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


def at_each_line(work: Callable[[], object], act: Callable[[], object], *files: str, step: int = 1) -> int:
    """Do some work again and again, and act before each line of it once; return how many lines there are.

    With a ``step``, act before one in so many lines, others in each run.
    """
    for stop in itertools.count(random.randint(1, step), step):
        with at_line(stop, act, *files) as lines:
            try:
                work()
            except BaseException as error:
                error.add_note(f"after an act before line {stop} of {lines.count}, {lines.where}")
                raise
        if lines.count < stop:
            return lines.count
    raise AssertionError
