"""Messages between processes: msgpack arrays over AF_UNIX SEQPACKET, with file descriptors where needed.

Guarantees: only `wait`, and `receive` with ``block``, block. Data that the socket does not accept are queued, up to a
bound. A message longer than a frame is split and joined again, up to a bound. Malformed data raise `MalformedMessage`
and affect no other connection. A channel that relays does bounded work a call, and one with limits decodes nothing whose
items it has not counted. Queues and pipes that pickle are not used: a pickle from a peer executes code, and is slower.
"""

from __future__ import annotations

import _socket  # `socket` itself takes 5 ms to import, for names of constants and for files
import io
import os
import select
import struct
from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import msgpack

from .bounded_decoding import Payload, find_last_field, skip_items

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

#: Frames of unfinished messages that a channel that relays receives in one call, and frames that any channel sends in one:
#: each takes some 30 us.
RECEIVED_AT_ONCE: Final = 2
SENT_AT_ONCE: Final = 4
#: Bytes of a payload that is joined in memory of its size from the beginning, which is mostly that of the payload before;
#: growing, it would take fresh pages. So the others grow, a little with each part: so many fresh pages at once take long.
RESERVED_AT_ONCE: Final = 16 * 1024 * 1024
#: Items of a message, those inside others counted, on a channel with limits; payloads are one item.
ITEMS_LIMIT: Final = 2560
#: Bytes of a message that is decoded without counting its items: these cannot cost more than some 10 us.
_UNCOUNTED: Final = 256

_LAST: Final = b"\0"
_MORE: Final = b"\1"
_UNTOUCHED: Final = 255
#: What one frame is made of, its mark first.
_Frame: TypeAlias = "tuple[bytes | memoryview, ...]"

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
    """One end of a connection. Not safe for concurrent sends or concurrent receives.

    ``relays`` is for a process that must not be kept busy: `receive` handles at most `RECEIVED_AT_ONCE` frames, and a long
    last field of a message is a `Payload`. ``limit_of`` returns the longest message of a kind, in bytes, for peers that
    must not cost more than they send: the items of messages are counted before they are decoded, and a message that is
    longer than a frame ends with a payload.
    """

    __slots__ = (
        "_arriving",
        "_buffer",
        "_expected",
        "_fds",
        "_limit_of",
        "_queue",
        "_queued",
        "_relays",
        "_size",
        "_socket",
        "_view",
        "accepts_fds",
        "has_more",
        "limit",
    )

    def __init__(
        self,
        sock: _socket.socket,
        *,
        accepts_fds: bool = False,
        limit: int = MAX_MESSAGE,
        relays: bool = False,
        limit_of: Callable[[int], int] | None = None,
    ) -> None:
        # Blocking by default, so that a wait for a message is one system call; every other call passes MSG_DONTWAIT.
        sock.setblocking(True)
        self._socket = sock
        #: Whether file descriptors may arrive with messages; otherwise the kernel closes them.
        self.accepts_fds = accepts_fds
        self._buffer = bytearray(FRAME + 2)  # one byte more than any valid frame, so that a longer one is noticed
        self._view = memoryview(self._buffer)
        self._arriving: _Arriving | None = None
        self._size = 0
        self._queue: deque[tuple[_Frame, tuple[int, ...]]] = deque()
        self._queued = 0
        self._fds: deque[int] = deque()
        #: Longest message accepted, in bytes.
        self.limit = limit
        self._relays = relays
        self._limit_of = limit_of
        #: Bytes of the message that is arriving, as its beginning announces them.
        self._expected = 0
        #: Whether `receive` has returned None because of `RECEIVED_AT_ONCE`.
        self.has_more = False

    def fileno(self) -> int:
        """Return the file descriptor of the socket, -1 once closed."""
        return self._socket.fileno()

    @property
    def queued(self) -> int:
        """Bytes that wait until the socket accepts more: the caller watches for writability and calls `flush`."""
        return self._queued

    @property
    def unfinished(self) -> int:
        """Bytes that have arrived of a message which is not complete."""
        return self._size

    def limit_waits(self, seconds: float) -> None:
        """Let `receive` with ``block`` return None after so many seconds without data."""
        limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
        self._socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, limit)

    def trust(self) -> None:
        """Accept messages up to `MAX_MESSAGE` from now on, less a frame for what forwarding a message may add."""
        self.limit = MAX_MESSAGE - FRAME

    def send(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        """Send a message, or queue what the socket does not accept now. ``fds`` must stay open until sent.

        Raises ChannelClosed, ChannelFull, and ValueError for a message beyond `MAX_MESSAGE`.
        """
        last = message[-1]
        if type(last) is Payload or (type(last) is bytes and len(last) > FRAME):
            frames, nbytes = _frames_of_payload(message[:-1], last)
        else:
            data: bytes = msgpack.packb(message)
            nbytes = len(data)
            if nbytes <= FRAME:
                frames = [(_LAST + data,)]
            else:
                frames = [*_cut(memoryview(data))]
        if nbytes > MAX_MESSAGE:
            raise ValueError(f"a message of {nbytes} bytes exceeds the limit of {MAX_MESSAGE}")
        if self._queued + nbytes > MAX_QUEUED:
            raise ChannelFull(f"{self._queued} bytes wait for a peer that does not read its messages")
        if not self._queue and len(frames) == 1 and self._put(frames[0], fds):
            return
        for frame in frames:
            self._queue.append((frame, fds))
            self._queued += sum(map(len, frame))
            fds = ()
        self.flush()

    def flush(self) -> bool:
        """Send queued data, `SENT_AT_ONCE` at most, while the socket accepts them; return whether all are sent.

        Raises ChannelClosed.
        """
        queue = self._queue
        for _ in range(min(len(queue), SENT_AT_ONCE)):
            frame, fds = queue[0]
            if not self._put(frame, fds):
                return False
            queue.popleft()
            self._queued -= sum(map(len, frame))
        return not queue

    def receive(self, *, block: bool = False) -> Message | None:
        """Return the next message. Without ``block``, None if no complete message has arrived.

        Raises ChannelClosed, MalformedMessage.
        """
        flags = 0 if block else _socket.MSG_DONTWAIT
        self.has_more = False
        frames = 0
        while True:
            size = self._take(flags)
            if size is None:
                return None
            if size > FRAME + 1:
                raise MalformedMessage(f"a frame longer than {FRAME} bytes")
            mark = self._buffer[0]
            if mark == 0 and self._arriving is None:
                return self._decode(self._view[1:size])
            if mark > 1:
                raise MalformedMessage(f"a frame marked {mark}")
            part = bytes(self._view[1:size])
            if self._limit_of is not None:
                self._check_part(self._limit_of, part, last=mark == 0)
            self._size += size - 1
            if self._size > self.limit:
                raise MalformedMessage(f"a message longer than {self.limit} bytes")
            if self._arriving is None:
                self._arriving = (_Unjoined if self._relays else _Joined)(part)
            else:
                self._arriving.add(part)
            if mark == 0:
                arrived, self._arriving, self._size = self._arriving, None, 0
                return arrived.message()
            frames += 1
            if self._relays and frames == RECEIVED_AT_ONCE:
                self.has_more = True
                return None

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
            self._socket.shutdown(_socket.SHUT_RDWR)
        except OSError:
            pass  # the connection has ended already

    def close(self) -> None:
        """Close the socket and every file descriptor that was not taken. May be repeated."""
        self._socket.close()
        self._queue.clear()
        self._queued = 0
        self._arriving = None
        self._size = 0
        while self._fds:
            os.close(self._fds.popleft())

    def _check_part(self, limit_of: Callable[[int], int], part: bytes, *, last: bool) -> None:
        """Check a part of a message that has several, before any of it is kept. Raises MalformedMessage."""
        if not last and len(part) != FRAME:
            raise MalformedMessage(f"a frame of {len(part)} bytes that others follow")
        if self._arriving is not None:
            if self._size + len(part) > self._expected or (last and self._size + len(part) != self._expected):
                raise MalformedMessage(f"a message that does not have the {self._expected} bytes that it announces")
            return
        limit = limit_of(part[1])
        if limit <= FRAME:
            raise MalformedMessage(f"a message of kind {part[1]} longer than {FRAME} bytes")
        try:
            found = find_last_field(part, ITEMS_LIMIT)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise MalformedMessage(f"not msgpack: {error}") from error
        if found is None:
            raise MalformedMessage(f"a message of kind {part[1]} longer than {FRAME} bytes without a payload")
        self._expected = found[1] + found[2]
        if self._expected > limit:
            raise MalformedMessage(f"a message of kind {part[1]} of {self._expected} bytes, more than {limit}")

    def _decode(self, data: memoryview) -> Message:
        """Return the message of one frame."""
        if self._limit_of is not None and len(data) > _UNCOUNTED:
            try:
                skip_items(data, 0, 1, ITEMS_LIMIT)
            except ValueError as error:
                raise MalformedMessage(str(error)) from error
        return _unpack(data)

    def _put(self, frame: _Frame, fds: tuple[int, ...]) -> bool:
        try:
            if fds:
                # Not `socket.send_fds`, which ignores its flags and would block.
                rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array("i", fds))]
                self._socket.sendmsg(frame, rights, _socket.MSG_DONTWAIT)
            elif len(frame) == 1:
                self._socket.send(frame[0], _socket.MSG_DONTWAIT)
            else:
                self._socket.sendmsg(frame, (), _socket.MSG_DONTWAIT)
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
        space = _socket.CMSG_SPACE(MAX_FDS * fds.itemsize)
        size, ancillary, outcome, _ = self._socket.recvmsg_into([self._buffer], space, flags | _socket.MSG_CMSG_CLOEXEC)
        for level, kind, data in ancillary:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        if outcome & _socket.MSG_CTRUNC:
            # This process can have no more descriptors. All of a message's come, or none: each is found by its order.
            while fds:
                os.close(fds.pop())
        self._fds.extend(fds)
        return size


class _Arriving(ABC):
    """A message whose parts arrive; its last field is not decoded, if that is what makes it long."""

    def __init__(self, first: bytes) -> None:
        try:
            found = find_last_field(first, ITEMS_LIMIT)
        except (ValueError, TypeError, msgpack.UnpackException):
            found = None  # another field is long too, or the whole message is malformed
        #: The other fields, None if they are not known yet, and the bytes of the last one.
        self._fields: Message | None = found[0] if found else None
        self._announced = found[2] if found else 0
        #: Where the kept bytes begin in the first part.
        self._start = found[1] if found else 0

    @abstractmethod
    def add(self, part: bytes) -> None:
        """Keep one more part."""

    @abstractmethod
    def message(self) -> Message:
        """Return the message, which is complete. Raises MalformedMessage."""

    def _check(self, nbytes: int) -> None:
        if nbytes != self._announced:
            raise MalformedMessage("a payload that does not have the bytes that it announces")


class _Unjoined(_Arriving):
    """Keeps parts as they are, for a process that sends them on: the last field is a `Payload`."""

    def __init__(self, first: bytes) -> None:
        super().__init__(first)
        self._parts = [memoryview(first)[self._start :]]

    def add(self, part: bytes) -> None:
        self._parts.append(memoryview(part))

    def message(self) -> Message:
        if self._fields is None:
            return _unpack(b"".join(self._parts))
        nbytes = sum(map(len, self._parts))
        self._check(nbytes)
        return [*self._fields, Payload([part for part in self._parts if part] or [memoryview(b"")], nbytes)]


class _Joined(_Arriving):
    """Joins parts as they come: to copy them all at the end would take a processor from other processes for long."""

    def __init__(self, first: bytes) -> None:
        super().__init__(first)
        self._whole = io.BytesIO()
        if 0 < self._announced <= RESERVED_AT_ONCE:
            self._whole.seek(self._announced - 1)
            self._whole.write(b"\0")
            self._whole.seek(0)
        self._whole.write(memoryview(first)[self._start :])

    def add(self, part: bytes) -> None:
        self._whole.write(part)

    def message(self) -> Message:
        if self._fields is None:
            return _unpack(self._whole.getbuffer())
        self._check(self._whole.tell())
        return [*self._fields, self._whole.getvalue()]


def pair() -> tuple[_socket.socket, _socket.socket]:
    """Return two connected sockets for channels; a new program inherits neither."""
    return _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)


def _cut(data: memoryview, head: bytes = b"") -> Iterator[_Frame]:
    """Yield the frames of ``head`` and ``data``, which are not empty; all but the last are full."""
    at = min(FRAME - len(head), len(data))
    mark = _MORE if at < len(data) else _LAST
    yield (mark, head, data[:at])
    for start in range(at, len(data), FRAME):
        yield (_MORE if start + FRAME < len(data) else _LAST, data[start : start + FRAME])


def _frames_of_payload(fields: Message, payload: bytes | Payload) -> tuple[list[_Frame], int]:
    """Return the frames and bytes of a message that ends with a payload. Pieces that have arrived are sent as they are."""
    packed: bytes = msgpack.packb(fields)
    head = bytes([packed[0] + 1]) + packed[1:] + b"\xc6" + len(payload).to_bytes(4, "big")
    nbytes = len(head) + len(payload)
    if isinstance(payload, bytes):
        return [*_cut(memoryview(payload), head)], nbytes
    frames: list[_Frame] = [(_MORE, head), *((_MORE, piece) for piece in payload.pieces[:-1])]
    return [*frames, (_LAST, payload.pieces[-1])], nbytes


def _unpack(data: bytes | memoryview) -> Message:
    try:
        message = msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MalformedMessage(f"not msgpack: {error}") from error
    if not isinstance(message, list) or not message:
        raise MalformedMessage("a message must be an array")
    return message
