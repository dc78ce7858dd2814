"""The prints of functions in a worker: standard output and error of `sys`, sent to the client that called the function.

Guarantees: a print never waits for another process, and never raises because of one. The texts of a function arrive in
order, those of both streams together, before its result. At most `HELD` characters are held; further ones are left out,
and their number is sent in their place. Limitation: programs that a function starts, and code that writes to descriptors
1 and 2 itself, write to the standard error of the program that started the pool.
"""

from __future__ import annotations

import _thread
import io
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..ipc.channel import Channel, ChannelClosed, Message

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

#: Characters that are held until they can be sent. A text counts as so many more, because an object keeps it.
HELD: Final = 1024 * 1024
_OBJECT: Final = 64
#: Characters of one message: fewer than a frame, also if each has four bytes.
_CHUNK: Final = 15 * 1024
#: Messages that are sent at once, and those a second after that: a message costs the coordinator some 20 us.
_BURST: Final = 64
_RATE: Final = 100.0
#: Seconds between attempts to send what is held.
_RETRY_S: Final = 0.02
#: Seconds to wait for a thread that sends: one never waits itself. An exception of a signal handler may leave the lock locked.
_SENDING_S: Final = 2.0


class _Text:
    """Text of a stream, by descriptor; without ``text``, a number of characters left out."""

    __slots__ = ("left_out", "stream", "text")

    def __init__(self, stream: int, text: str, left_out: int = 0) -> None:
        self.stream = stream
        self.text = text
        self.left_out = left_out


class Prints:
    """What the function under way prints. All messages of the worker are sent with `send`, from any thread."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._process = os.getpid()
        #: How each message begins while a function is under way: its kind, and the numbers of the call. Empty otherwise.
        self.head: Sequence[Any] = ()
        #: Whether the function has printed, or changed a stream.
        self.used = False
        #: Signal handlers and finalizers print too, so `add` only appends, and never waits for this lock.
        self._sending = threading.Lock()
        self._held: deque[_Text] = deque()
        self._size = 0
        self._full = False
        self._credit, self._counted = float(_BURST), 0.0
        self._retrying = False
        self._streams: dict[str, _Stream] = {}
        self._own: tuple[_Stream, ...] = ()
        self._before: dict[str, object] = {}
        #: Whether the streams stay replaced after a function.
        self.in_row = False
        #: Writes to the worker's own descriptors that failed.
        self.lost = 0

    def send(self, message: Message) -> None:
        """Send a message and wait until the coordinator, which never waits for a worker, has read it."""
        sending = self._lock()
        try:
            self._send(message)
        finally:
            sending.release()

    def begin(self, head: Sequence[Any]) -> None:
        """Replace ``sys.stdout`` and ``sys.stderr`` until `end`. Messages with their texts begin with ``head``."""
        self.head = head
        self._before = {"stdout": sys.stdout, "stderr": sys.stderr}
        # New ones for each function that finds changed ones: another may have closed, detached or reconfigured them.
        if self.used or not self._streams:
            for number, name in enumerate(self._before, 1):
                errors = "strict" if number == 1 else "backslashreplace"
                raw = _Descriptor(self, number)
                stream = _Stream(raw, encoding="utf-8", errors=errors, line_buffering=True)
                stream.use = self._use
                self._streams[name] = stream
            self.used = False  # the end of a former stream counts as a use
        self._own = sys.stdout, sys.stderr = self._streams["stdout"], self._streams["stderr"]

    def end(self) -> bool:
        """Send what is held and restore the streams. Return whether the function has printed."""
        for name, stream in self._before.items():
            own = self._streams[name]
            if getattr(sys, name, None) is not own or len(own.__dict__) > 1:
                self.used = True
            setattr(sys, name, stream)
        if not self.used:
            self.head = ()
            return False
        for stream in self._streams.values():
            try:
                stream.flush()
            except ValueError:
                pass  # the function has detached it
        sending = self._lock()
        try:
            while self._held:
                self._send(self._next())
        finally:
            self.head = ()
            sending.release()
        return True

    def begin_next(self, head: Sequence[Any]) -> None:
        """Begin the next function of a row, as `begin`. The streams stay replaced between the functions of a row.

        If they are ``in_row`` and not ``used``, setting ``head`` is all of this.
        """
        self.end_row()
        self.begin(head)
        self.in_row = True

    def end_next(self) -> bool:
        """End a function of a row, as `end`."""
        out, errors = self._own
        if (
            self.used
            or sys.stdout is not out
            or sys.stderr is not errors
            or len(out.__dict__) > 1
            or len(errors.__dict__) > 1
        ):
            self.in_row = False
            return self.end()
        self.head = ()
        return False

    def end_row(self) -> None:
        """Restore the streams after a row of functions."""
        if self.in_row:
            self.in_row = False
            for name, stream in self._before.items():
                setattr(sys, name, stream)

    def add(self, stream: int, data: bytes) -> None:
        """Send the text of a stream soon. In a process that the function has forked, write it to the descriptor."""
        self.used = True
        if not self.head or os.getpid() != self._process:
            self._write(stream, data)
            return
        # Once full, half of it is sent before more is held: a few large gaps are better than many small ones.
        self._full = self._full and self._size > HELD // 2
        room = 0 if self._full else HELD - self._size
        if room > 0:
            text = data[:room].decode("utf-8", "replace")
            for start in range(0, len(text), _CHUNK):
                part = text[start : start + _CHUNK]
                self._size += len(part) + _OBJECT
                self._held.append(_Text(stream, part))
        if len(data) > room:
            self._full = True
            last = self._held[-1] if self._held else None
            if last is None or not last.left_out:
                self._held.append(last := _Text(stream, ""))
            last.left_out += len(data) - max(0, room)
        if not self._retrying:
            self._send_held()

    def _send_held(self) -> None:
        sending = self._sending
        while self._held and sending.acquire(blocking=False):
            try:
                while self._held and self._may_send():
                    self._send(self._next())
            except ChannelClosed:
                return  # the worker notices it when the function has ended
            finally:
                sending.release()
            if self._held:
                self._retry()
                return

    def _lock(self) -> threading.Lock:
        """Return the lock, acquired; another one if it stays locked."""
        sending = self._sending
        if not sending.acquire(timeout=_SENDING_S):
            sending = self._sending = threading.Lock()
            sending.acquire()
        return sending

    def _may_send(self) -> bool:
        """Return whether a message can be sent at once, without being queued, and take it off the credit."""
        now = time.monotonic()
        self._credit = min(_BURST, self._credit + (now - self._counted) * _RATE)
        self._counted = now
        if self._credit < 1 or not self._channel.wait(0, to_receive=False, to_send=True):
            return False
        self._credit -= 1
        return True

    def _next(self) -> Message:
        """Return the message of the first texts held, as many as one stream has in a row."""
        first = self._held.popleft()
        if first.left_out:
            return [*self.head, first.stream, first.left_out, ""]
        texts, size, cost = [first.text], len(first.text), len(first.text) + _OBJECT
        while self._held:
            after = self._held[0]
            if after.left_out or after.stream != first.stream or size + len(after.text) > _CHUNK:
                break
            texts.append(self._held.popleft().text)
            size += len(after.text)
            cost += len(after.text) + _OBJECT
        self._size = self._size - cost if self._held else 0
        return [*self.head, first.stream, 0, "".join(texts)]

    def _send(self, message: Message) -> None:
        channel = self._channel
        channel.send(message)
        while channel.queued:
            channel.wait(None, to_receive=False, to_send=True)
            channel.flush()

    def _retry(self) -> None:
        """Send the rest from a thread, which exists only while text is held; without one, it is sent by the next print."""
        if self._retrying:
            return
        self._retrying = True
        try:
            # Not threading.Thread, whose start an exception of a signal handler breaks.
            _thread.start_new_thread(self._retry_until_sent, ())
        except BaseException as error:
            self._retrying = False
            if not isinstance(error, RuntimeError):
                raise  # it is one of a signal handler; the other says that no thread can be started

    def _retry_until_sent(self) -> None:
        try:
            while self._held:
                time.sleep(_RETRY_S)
                self._send_held()
        finally:
            self._retrying = False
        if self._held:
            self._send_held()

    def _use(self) -> None:
        self.used = True

    def _write(self, stream: int, data: bytes) -> None:
        try:
            os.write(stream, data)
        except OSError:
            self.lost += 1


class _Stream(io.TextIOWrapper):
    """A stream that notes when a function uses it: it is a new one for the next function then."""

    use: Callable[[], None]

    def write(self, text: str, /) -> int:
        self.use()
        return super().write(text)

    def reconfigure(self, **changes: Any) -> None:
        self.use()
        super().reconfigure(**changes)

    def detach(self) -> Any:
        self.use()
        return super().detach()

    def close(self) -> None:
        self.use()
        super().close()


class _Descriptor(io.RawIOBase):
    """The bytes of one of the streams. Closing it has no effect: a stream that is no longer referred to closes it."""

    def __init__(self, prints: Prints, number: int) -> None:
        super().__init__()
        self.name = "<stdout>" if number == 1 else "<stderr>"
        self.mode = "w"
        self._prints = prints
        self._number = number

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        found = bytes(data)
        self._prints.add(self._number, found)
        return len(found)

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        pass
