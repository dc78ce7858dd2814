"""Progress of a command that works through numbered items."""

from __future__ import annotations

import sys
import time
from typing import Final

from poolrt.cli.streams import say

#: Least time, in seconds, between two lines of progress if standard error is no terminal.
_BETWEEN_LINES_S: Final = 1.0


class Progress:
    """Progress on standard error: one line that is overwritten on a terminal, else a new line at most each second."""

    def __init__(self, done: str) -> None:
        self._done = done
        self._terminal = sys.stderr.isatty()
        self._printed = time.monotonic()
        self._open = False

    def show(self, number: int, of: int) -> None:
        """Print that `number` entries of `of` are done."""
        now = time.monotonic()
        if self._terminal:
            say(f"\r{self._done} {number} of {of}", end="")
            self._open = True
        elif now - self._printed >= _BETWEEN_LINES_S:
            say(f"{self._done} {number} of {of}")
            self._printed = now

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            say("")
