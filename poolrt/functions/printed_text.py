"""What functions print in workers, written to the standard output and error of this process."""

from __future__ import annotations

import os
import sys
import threading
from contextvars import Context
from typing import Final

from poolrt.workers.ipc.channel import Message

#: Characters that wait to be written; further ones are left out.
_WAITING: Final = 4 * 1024 * 1024
#: Seconds that a text under way may take when the program exits.
_EXIT_S: Final = 2.0


class PrintedText:
    """Writes TEXT messages. `accept` is called when one arrives and never waits; then `write`, by the thread of futures.

    Guarantees: a stream that takes no more delays futures, but no other call; it costs a bounded amount of memory. One that
    is closed or fails costs its text only: ``lost`` counts the texts that could not be written.
    """

    def __init__(self) -> None:
        self.lost = 0
        # Each number has one writer at a time: the thread that reads messages, or the thread of futures.
        self._accepted = self._left_out = 0
        self._written = 0
        self._process = os.getpid()
        self._writing = threading.Lock()
        self._stopped = False

    def accept(self, message: Message) -> bool:
        """Return whether the message is to be written; if too many wait, its text counts as left out."""
        _, _, _, left_out, text = message
        if self._accepted - self._written > _WAITING:
            self._left_out += left_out + len(text)
            return False
        self._accepted += len(text)
        message[3], self._left_out = left_out + self._left_out, 0
        return True

    def write(self, message: Message, context: Context | None) -> None:
        """Write a text, in the context of the call: IPython's streams find the cell in it."""
        _, _, stream, left_out, text = message
        with self._writing:
            try:
                if self._stopped:
                    self.lost += 1
                elif context is None:
                    _write(stream, left_out, text)
                else:
                    context.run(_write, stream, left_out, text)
            except Exception:  # noqa: BLE001 - the user's stream may raise anything; the function has printed without an error
                self.lost += 1
            finally:
                self._written += len(text)

    def stop(self) -> None:
        """Write nothing more, and wait for the text under way. For the exit of the interpreter, before it stops threads.

        A thread that is stopped while it writes keeps the stream locked, and the interpreter aborts when it flushes that.
        """
        self._stopped = True
        if os.getpid() != self._process:
            return  # in a fork, no thread writes, and the lock may be locked for ever
        if self._writing.acquire(timeout=_EXIT_S):
            self._writing.release()


def _write(number: int, left_out: int, text: str) -> None:
    stream = sys.stdout if number == 1 else sys.stderr
    if left_out:
        text = f"\n[poolrt: {left_out} characters that functions printed are left out here: print less, or to a file]\n{text}"
    if stream is None or not text:
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = getattr(stream, "encoding", None) or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    if stream.isatty():
        stream.flush()  # a function may print parts of lines
