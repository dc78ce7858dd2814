"""A connection of a client with rings, and nothing that keeps it from writing anything there."""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import cloudpickle
import msgpack

from poolrt.connection.server import connect_socket
from poolrt.workers.ipc.call_ring import SubmittingCallRing
from poolrt.workers.ipc.channel import Channel, ChannelError
from poolrt.workers.ipc.outlined_payload import LONG
from poolrt.workers.ipc.protocol import VERSION, Kind
from poolrt.workers.ipc.ring import SubmittingRing
from poolrt.workers.memory.arena_view import ArenaView

from ..poolrt.pool.processes import relu_graph

#: Bound, in seconds, on any answer.
ANSWER_S: Final = 60.0
_SHAPE: Final = (4, 8)
#: Bytes of each input and output of the model, and of the slots of arguments.
NBYTES: Final = 128
LONG_BYTES: Final = 2 * LONG
#: The numbers of the functions `echo` and `grow`.
ECHO: Final = 1
GROW: Final = 2
#: The byte before a message in one piece.
_LAST: Final = b"\0"


def echo(*args: Any) -> Any:
    """Return the first argument, or the first bytes of its memory."""
    first = args[0] if args else None
    return (
        first if first is None or type(first) in (int, float, str, bytes) else bytes(memoryview(first).cast("B")[:4096])
    )


def grow(*args: Any) -> bytes:
    """Return more bytes than a ring carries."""
    return bytes(20_000 + (args[0] % 50_000 if args and type(args[0]) is int else 0))


class Ended(Exception):
    """The coordinator has ended the connection."""


class Connection:
    """A connection with rings to both workers, and nothing that keeps it from writing anything there."""

    def __init__(self, path: str) -> None:
        self.channel = Channel(connect_socket(path), accepts_fds=True)
        self.runs: dict[int, tuple[SubmittingRing, socket.socket]] = {}
        self.calls: dict[int, tuple[SubmittingCallRing, socket.socket]] = {}
        self._models: set[int] = set()
        self._callable: dict[int, set[int]] = {}
        self._urgent: dict[int, int] = {}
        self._requests = 10
        self.rooms: list[int] = []
        #: Rings with damaged words, which may keep entries from being served.
        self.odd: set[int] = set()
        #: Everything that came, for a look at whether it is another client's.
        self.seen = bytearray()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers may not import tests
        self.send([Kind.HELLO, VERSION])
        self.arena_bytes = self.answer(Kind.WELCOME)[2]
        self.arena = _map(self.channel)
        graph = relu_graph(_SHAPE)
        self.send([Kind.LOAD, 1, "attacked", ["cpu"], 0, msgpack.packb(graph.to_wire()[0])])
        self.model = self.answer(Kind.LOADED)[2]
        self.send([Kind.ALLOCATE, 2, [NBYTES] * 4 + [LONG_BYTES] * 2])
        offsets = self.answer(Kind.ALLOCATED)[2]
        self.inputs, self.outputs, self.long = offsets[:2], offsets[2:4], offsets[4:]
        for number in range(4):
            self.send([Kind.RUN, 3 + number, self.model, [self.inputs[0]], []])
            self.answer(Kind.DONE)
        for number, function in ((ECHO, echo), (GROW, grow)):
            self.send([Kind.FUNCTION, number, msgpack.packb([[], cloudpickle.dumps(function)])])
            self.send([Kind.CALLS, number])
        until = time.monotonic() + ANSWER_S
        while not self._is_whole():
            self.take(until)

    def _is_whole(self) -> bool:
        called = [numbers for numbers in self._callable.values() if len(numbers) == 2]
        return len(self._models) == len(called) == 2

    def send(self, message: list[Any]) -> None:
        """Send a message. Raises Ended."""
        try:
            self.channel.send(message)
        except ChannelError as error:
            raise Ended(str(error)) from None

    def send_bytes(self, data: bytes) -> None:
        """Send a message in one piece as bytes. Raises Ended."""
        try:
            with socket.socket(fileno=os.dup(self.channel.fileno())) as sock:
                sock.send(_LAST + data)
        except OSError as error:
            raise Ended(str(error)) from None

    def answer(self, kind: Kind) -> list[Any]:
        """Return the next message of a kind. Raises Ended."""
        until = time.monotonic() + ANSWER_S
        while (message := self.take(until))[0] != kind:
            pass
        return message

    def take(self, until: float) -> list[Any]:
        """Return the next message. Raises Ended, and TimeoutError."""
        while True:
            try:
                message = self.channel.receive()
            except ChannelError as error:
                raise Ended(str(error)) from None
            if message is not None:
                self._note(message)
                return message
            if not self.channel.wait(max(0.0, until - time.monotonic())):
                raise TimeoutError(f"no message within {ANSWER_S:g} s")

    def take_all(self) -> None:
        """Take the messages that are there. Raises Ended."""
        while self.channel.wait(0):
            self.take(time.monotonic() + ANSWER_S)

    def _note(self, message: list[Any]) -> None:
        kind = message[0]
        if kind in (Kind.RING, Kind.CALL_RING):
            view, bell = _map(self.channel), socket.socket(fileno=self.channel.take_fd())
            memory = view.buffer(0, view.nbytes)
            if kind == Kind.RING:
                self.runs[message[1]] = SubmittingRing(message[1], memory), bell
            else:
                self.calls[message[1]] = SubmittingCallRing(message[1], memory), bell
        elif kind == Kind.RING_MODEL:
            self._models.add(message[1])
        elif kind == Kind.CALLABLE:
            self._callable.setdefault(message[1], set()).add(message[2])
        elif kind == Kind.RESULT_ROOM:
            self.rooms += message[2]
        elif kind != Kind.RING_ENDS:
            self.seen += repr(message).encode()

    def ping(self) -> None:
        """Return once the coordinator has handled all messages. Raises Ended."""
        self.send([Kind.PING])
        self.answer(Kind.PONG)

    def await_effect(self, condition: Callable[[], bool], bell: socket.socket, seconds: float) -> bool:
        """Return whether a condition came true; take what comes meanwhile. Raises Ended."""
        poll = select.poll()
        for fd in (self.channel.fileno(), bell.fileno()):
            poll.register(fd, select.POLLIN)
        until = time.monotonic() + seconds
        while not condition():
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            poll.poll(min(2.0, 1000 * left_s))
            with suppress(OSError):
                bell.recv(256, socket.MSG_DONTWAIT)
            self.take_all()
        return True

    def urgent_model(self, priority: int) -> int:
        """Return the model at a priority, of which two are loaded at most. Raises Ended."""
        if priority not in self._urgent:
            if len(self._urgent) == 2:
                return next(iter(self._urgent.values()))
            graph = msgpack.packb(relu_graph(_SHAPE).to_wire()[0])
            self.send([Kind.LOAD, self.request(), "attacked", ["cpu"], priority, graph])
            self._urgent[priority] = self.answer(Kind.LOADED)[2]
        return self._urgent[priority]

    def request(self) -> int:
        """Return an unused number of a request."""
        self._requests += 1
        return self._requests

    def close(self) -> None:
        """Disconnect."""
        self.channel.close()
        for _, bell in (*self.runs.values(), *self.calls.values()):
            bell.close()


def _map(channel: Channel) -> ArenaView:
    fd = channel.take_fd()
    try:
        return ArenaView(fd)
    finally:
        os.close(fd)
