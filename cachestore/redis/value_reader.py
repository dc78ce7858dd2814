"""Read values with fewer steps and copies than the client takes: one write, one read, one copy.

The client makes the connection, with address, TLS and password from the URL; this module then speaks RESP 2 on its
socket. It reads plain answers only. For anything else (an error, a connection that the server has closed) the answer is
None, and the caller asks again through the client, which handles all cases.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

#: First size, in bytes, of a connection's buffer, and the largest that is kept.
_BUFFER: Final = 256 * 1024
_MOST_BUFFER: Final = 4 << 20
#: Room, in bytes, for the lines around a value.
_MARGIN: Final = 64
#: Idle connections that are kept open.
_MOST_IDLE: Final = 4
#: Largest value, in bytes, that Redis keeps by default (proto-max-bulk-len).
_LARGEST: Final = 512 << 20
#: Longest line of an answer that is plain.
_LONGEST_LINE: Final = 32


class NotPlain(Exception):
    """An answer is not a plain one. Raised and caught in this module."""


class ValueReader:
    """Ask for some fields of one hash and some values, in one round trip. Thread-safe.

    `connect` returns a connection of the client that is ready, `fields` is the command for the hash.
    """

    def __init__(self, connect: Callable[[], Any], *fields: str) -> None:
        self._connect = connect
        self._fields = _packed(fields)
        self._count = len(fields) - 2
        self._idle: list[_Wire] = []

    def read(self, names: Sequence[str]) -> tuple[list[bytes | None], list[bytes | None]] | None:
        """Return the hash's fields and the values; None when the caller has to ask the client instead.

        Raises TimeoutError when the server is silent, and the errors of connecting.
        """
        wire = self._idle.pop() if self._idle else _Wire(self._connect())
        whole = False
        try:
            wire.send(b"".join([self._fields, *map(_get, names)]))
            fields = wire.fields(self._count)
            values = [wire.value() for _ in names]
            whole = wire.is_drained
        except BlockingIOError:
            # The kernel's error for the time-out of a plain socket.
            raise TimeoutError("no answer in time") from None
        except TimeoutError:
            raise
        except (OSError, NotPlain):
            return None
        finally:
            if whole and len(self._idle) < _MOST_IDLE:
                self._idle.append(wire)
            else:
                wire.close()
        return fields, values

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()


class _Wire:
    """One connection and its received bytes."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket = _bounded(connection._sock)
        self._buffer = bytearray(_BUFFER)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        # The last answer to the command for the hash: it seldom changes.
        self._raw_fields = b"never"
        self._fields: list[bytes | None] = []

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left, so that the next answer belongs to the next question."""
        return self._start == self._end

    def fields(self, count: int) -> list[bytes | None]:
        """Return the fields of the hash."""
        self._receive(1)
        if self._buffer.startswith(self._raw_fields, self._start):
            self._start += len(self._raw_fields)
            return self._fields
        begin = self._start
        if self._line() != b"*%d" % count:
            raise NotPlain
        self._fields = [self.value() for _ in range(count)]
        self._raw_fields = bytes(self._view[begin : self._start])
        return self._fields

    def value(self) -> bytes | None:
        """Return one value, None where there is none."""
        head = self._line()
        if head == b"$-1":
            return None
        if head[:1] != b"$" or not head[1:].isdigit():
            raise NotPlain
        size = int(head[1:])
        if size > _LARGEST:
            raise NotPlain
        self._receive(size + 2)
        begin, end = self._start, self._start + size
        if self._buffer[end : end + 2] != b"\r\n":
            raise NotPlain
        self._start = end + 2
        return bytes(self._view[begin:end])

    def close(self) -> None:
        self._connection.disconnect()

    def _line(self) -> bytes:
        """Return the next line without its end."""
        while (at := self._buffer.find(b"\r\n", self._start, self._end)) < 0:
            if self._end - self._start > _LONGEST_LINE:
                raise NotPlain
            self._receive(self._end - self._start + 1)
        line = bytes(self._view[self._start : at])
        self._start = at + 2
        return line

    def _receive(self, size: int) -> None:
        """Wait until `size` bytes are received."""
        if self._start == self._end:
            self._start = self._end = 0
        too_large = self._end == 0 and len(self._buffer) > _MOST_BUFFER
        if too_large or self._start + size > len(self._buffer):
            self._make_room(size)
        while self._end - self._start < size:
            count = self._socket.recv_into(self._view[self._end :])
            if count == 0:
                raise NotPlain
            self._end += count

    def _make_room(self, size: int) -> None:
        """Move the unread bytes to the start of a buffer with room for `size` bytes and another answer's lines."""
        rest = bytes(self._view[self._start : self._end])
        self._buffer = bytearray(max(_BUFFER, size + _MARGIN))
        self._view = memoryview(self._buffer)
        self._start, self._end = 0, len(rest)
        self._view[: len(rest)] = rest


def _bounded(sock: socket.socket) -> socket.socket:
    """Let the kernel apply the time-out of a plain socket, which saves a system call before every read and write."""
    timeout = sock.gettimeout()
    if type(sock) is socket.socket and timeout:
        limit = struct.pack("@ll", int(timeout), int(timeout % 1 * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        sock.settimeout(None)
    return sock


def _get(name: str) -> bytes:
    return b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(name), name.encode("ascii"))


def _packed(command: Sequence[str]) -> bytes:
    """Return a command as the server reads it."""
    parts = [b"*%d\r\n" % len(command)]
    for item in command:
        data = item.encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)
