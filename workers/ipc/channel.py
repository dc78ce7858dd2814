"""Messages between processes: msgpack arrays over AF_UNIX SEQPACKET, with file descriptors where needed.

Guarantees: only `wait`, and `receive` with ``block``, block. Data that the socket does not accept are queued, up to a
bound. A message longer than a frame is split and joined again, up to a bound. Malformed data raise `MalformedMessage`
and affect no other connection. Queues and pipes that pickle are not used: a pickle from a peer executes code, and is
slower.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from array import array
from collections import deque
from typing import Any, Final

import msgpack

#: Payload bytes of one frame: far below the smallest default SO_SNDBUF (about 208 KiB), which bounds a SEQPACKET packet.
FRAME: Final = 64 * 1024
#: Longest message, in bytes, that is sent or accepted.
MAX_MESSAGE: Final = 256 * 1024 * 1024
#: Bytes that may wait for a peer that does not read; more is refused.
MAX_QUEUED: Final = 2 * MAX_MESSAGE
#: How msgpack encodes folders that a client sends to its own functions: their paths need not be UTF-8.
ESCAPES: Final = "surrogateescape"
#: File descriptors that may travel with one message.
MAX_FDS: Final = 4

_LAST: Final = b"\0"
_MORE: Final = b"\1"
_UNTOUCHED: Final = 255

Message = list[Any]


class ChannelError(Exception):
    """Root of the errors that a channel raises."""


class ChannelClosed(ChannelError):
    """The peer has disconnected, or this side has closed the channel."""


class ChannelFull(ChannelError):
    """The peer does not read and the queue has reached its bound."""


class MalformedMessage(ChannelError):
    """The peer sent data that are no message of this protocol: close the connection."""


class Channel:
    """One end of a connection. Not safe for concurrent sends or concurrent receives."""

    __slots__ = ("_buffer", "_fds", "_parts", "_queue", "_queued", "_size", "_socket", "_view", "accepts_fds", "limit")

    def __init__(self, sock: socket.socket, *, accepts_fds: bool = False, limit: int = MAX_MESSAGE) -> None:
        # Blocking by default, so that a wait for a message is one system call; every other call passes MSG_DONTWAIT.
        sock.setblocking(True)
        self._socket = sock
        #: Whether file descriptors may arrive with messages; otherwise the kernel closes them.
        self.accepts_fds = accepts_fds
        self._buffer = bytearray(FRAME + 2)  # one byte more than any valid frame, so that a longer one is noticed
        self._view = memoryview(self._buffer)
        self._parts: list[bytes] = []
        self._size = 0
        self._queue: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._queued = 0
        self._fds: deque[int] = deque()
        #: Longest message accepted, in bytes.
        self.limit = limit

    def fileno(self) -> int:
        """Return the file descriptor of the socket, -1 once closed."""
        return self._socket.fileno()

    @property
    def queued(self) -> int:
        """Bytes that wait until the socket accepts more: the caller watches for writability and calls `flush`."""
        return self._queued

    def limit_waits(self, seconds: float) -> None:
        """Let `receive` with ``block`` return None after so many seconds without data."""
        limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)

    def trust(self) -> None:
        """Accept messages up to `MAX_MESSAGE` from now on, less a frame for what forwarding a message may add."""
        self.limit = MAX_MESSAGE - FRAME

    def send(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        """Send a message, or queue what the socket does not accept now. ``fds`` must stay open until sent.

        Raises ChannelClosed, ChannelFull, and ValueError for a message beyond `MAX_MESSAGE`.
        """
        data: bytes = msgpack.packb(message)
        if len(data) <= FRAME:
            frames = [_LAST + data]
        else:
            if len(data) > MAX_MESSAGE:
                raise ValueError(f"a message of {len(data)} bytes exceeds the limit of {MAX_MESSAGE}")
            cuts = range(0, len(data), FRAME)
            frames = [(_MORE if at + FRAME < len(data) else _LAST) + data[at : at + FRAME] for at in cuts]
        if self._queued + len(data) > MAX_QUEUED:
            raise ChannelFull(f"{self._queued} bytes wait for a peer that does not read its messages")
        if not self._queue and len(frames) == 1 and self._put(frames[0], fds):
            return
        for frame in frames:
            self._queue.append((frame, fds))
            self._queued += len(frame)
            fds = ()
        self.flush()

    def flush(self) -> bool:
        """Send queued data while the socket accepts them; return whether all are sent. Raises ChannelClosed."""
        queue = self._queue
        while queue:
            frame, fds = queue[0]
            if not self._put(frame, fds):
                return False
            queue.popleft()
            self._queued -= len(frame)
        return True

    def receive(self, *, block: bool = False) -> Message | None:
        """Return the next message. Without ``block``, None if no complete message has arrived.

        Raises ChannelClosed, MalformedMessage.
        """
        flags = 0 if block else socket.MSG_DONTWAIT
        while True:
            size = self._take(flags)
            if size is None:
                return None
            if size > FRAME + 1:
                raise MalformedMessage(f"a frame longer than {FRAME} bytes")
            mark = self._buffer[0]
            if mark == 0 and not self._parts:
                return _decode(self._view[1:size])
            if mark > 1:
                raise MalformedMessage(f"a frame marked {mark}")
            self._size += size - 1
            if self._size > self.limit:
                raise MalformedMessage(f"a message longer than {self.limit} bytes")
            self._parts.append(bytes(self._view[1:size]))
            if mark == 0:
                whole = b"".join(self._parts)
                self._parts.clear()
                self._size = 0
                return _decode(whole)

    def mark(self) -> None:
        """Note that everything received so far has been handled; see `untouched`."""
        self._buffer[0] = _UNTOUCHED

    @property
    def untouched(self) -> bool:
        """Whether nothing was received since `mark`: an interrupted receive has then lost nothing."""
        return self._buffer[0] == _UNTOUCHED

    def take_fd(self) -> int:
        """Return the next file descriptor that came with a message; the caller owns it. Raises MalformedMessage if none did."""
        if not self._fds:
            raise MalformedMessage("a message came without its file descriptor")
        return self._fds.popleft()

    def wait(self, timeout: float | None, *, to_receive: bool = True, to_send: bool = False) -> bool:
        """Wait for data, for room (``to_send``), or for the end of the connection; False after ``timeout`` seconds."""
        poll = select.poll()
        poll.register(self._socket, (select.POLLIN if to_receive else 0) | (select.POLLOUT if to_send else 0))
        return bool(poll.poll(None if timeout is None else max(0.0, timeout) * 1000))

    def shut_down(self) -> None:
        """End the connection, so that every wait returns, here and at the peer. The socket stays open until `close`."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the connection has ended already

    def close(self) -> None:
        """Close the socket and every file descriptor that was not taken. May be repeated."""
        self._socket.close()
        self._queue.clear()
        self._queued = 0
        while self._fds:
            os.close(self._fds.popleft())

    def _put(self, frame: bytes, fds: tuple[int, ...]) -> bool:
        try:
            if fds:
                # Not socket.send_fds, which ignores its flags and would block.
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))]
                self._socket.sendmsg([frame], rights, socket.MSG_DONTWAIT)
            else:
                self._socket.send(frame, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            raise ChannelClosed(f"the peer has disconnected ({error.strerror})") from error
        return True

    def _take(self, flags: int) -> int | None:
        try:
            if self.accepts_fds:
                size = self._take_with_fds(flags)
            else:
                size = self._socket.recv_into(self._buffer, 0, flags)
        except BlockingIOError:
            return None
        except OSError as error:
            raise ChannelClosed(f"the peer has disconnected ({error.strerror})") from error
        if size == 0:
            raise ChannelClosed("the peer has disconnected")
        return size

    def _take_with_fds(self, flags: int) -> int:
        fds = array("i")
        space = socket.CMSG_SPACE(MAX_FDS * fds.itemsize)
        size, ancillary, _, _ = self._socket.recvmsg_into([self._buffer], space, flags | socket.MSG_CMSG_CLOEXEC)
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        self._fds.extend(fds)
        return size


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets for channels; a new program inherits neither."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _decode(data: bytes | memoryview) -> Message:
    try:
        message = msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MalformedMessage(f"not msgpack: {error}") from error
    if not isinstance(message, list) or not message:
        raise MalformedMessage("a message must be an array")
    return message
