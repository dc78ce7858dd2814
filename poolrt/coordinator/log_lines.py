"""Lines on standard error about clients: a few of each reason at a time, so that no client fills a disk with them.

The bounds are of the kind that Linux has for lines of its kernel (`printk_ratelimit`).
"""

from __future__ import annotations

import select
from collections import Counter
from typing import Final, TextIO

#: Seconds over which lines are counted, from the first one.
WINDOW_S: Final = 10.0
#: Lines of one reason, and of all reasons, that are printed in a window; the rest is counted.
SAME_LIMIT: Final = 5
LINES_LIMIT: Final = 50


class LogLines:
    """Prints lines within limits. At the end of a window, one line says how many others were left out.

    ``stream`` is standard error, None if the process has none. Guarantees: `print` neither waits nor raises. A line is left
    out too if the stream is closed, full or fails.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        #: When the window began; None if there is none.
        self._began: float | None = None
        #: Reason -> lines in this window. It has at most `LINES_LIMIT` reasons.
        self._printed: Counter[str] = Counter()
        self._left_out = 0
        self._last = ""

    def print(self, line: str, reason: str, now: float) -> None:
        """Print a line, ``reason`` at its end, unless it exceeds a limit; ``now`` is the time in seconds."""
        self.tick(now)
        if self._began is None:
            self._began = now
        if (
            self._printed[reason] >= SAME_LIMIT
            or self._printed.total() >= LINES_LIMIT
            or not self._write(f"{line}: {reason}")
        ):
            self._left_out += 1
            self._last = reason
        else:
            self._printed[reason] += 1

    @property
    def counts(self) -> bool:
        """Whether there is a window, at whose end there may be a line to print."""
        return self._began is not None

    def tick(self, now: float) -> None:
        """End the window if it is over, and print how many lines were left out. Call it from time to time."""
        if self._began is None or now - self._began < WINDOW_S:
            return
        text = f"{self._left_out} more lines about clients in {now - self._began:.0f} s, the last one: {self._last}"
        if self._left_out and not self._write(text):
            self._began = now  # the number is printed once standard error takes it
        else:
            self._began, self._left_out = None, 0
        self._printed.clear()

    def _write(self, text: str) -> bool:
        """Print a line of printable characters; return False if that fails or would wait."""
        if not text.isprintable():
            text = text.encode("unicode_escape").decode()
        try:
            if self._stream is None:
                return False
            room = select.poll()
            room.register(self._stream, select.POLLOUT)
            if [events for _, events in room.poll(0)] != [select.POLLOUT]:
                return False  # it is full, or a pipe that has no reader any more
            print(f"poolrt: {text[:300]}", file=self._stream, flush=True)
        except (OSError, ValueError):
            return False
        return True
