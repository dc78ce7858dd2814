"""Messages of a client that means harm: each kind makes as much work or memory as it can for as few bytes as it can."""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, TypeAlias

import cloudpickle
import msgpack

from poolrt.workers.ipc.channel import FRAME
from poolrt.workers.ipc.protocol import VERSION, Kind

from .processes import BOUND_S

_MIB: Final = 1024 * 1024
#: The bytes of a message, or its beginning and the rest: what is long is made once, for a process that makes such messages
#: again and again takes a processor from everybody, whatever the pool does.
Message: TypeAlias = "bytes | tuple[bytes, bytes]"
#: Post-ops, quantisation, engine and implementation of a node that has none of its own.
_NOTHING: Final[tuple[Any, ...]] = ([], [], "", "")


class Attacker:
    """A client that sends bytes of its own choice, drops the answers, and connects again when it is thrown out."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        #: Connections that the coordinator has ended.
        self.thrown_out = 0

    def send(self, frames: Iterator[bytes]) -> None:
        """Send the frames of one message, or as many as the coordinator takes."""
        try:
            if self._socket is None:
                self._socket = connect(self._path)
            for number, frame in enumerate(frames):
                self._socket.send(frame)
                if number % 16 == 0:
                    self._drop_answers(self._socket)
            self._drop_answers(self._socket)
        except OSError:
            self.thrown_out += 1
            self.leave()

    @staticmethod
    def _drop_answers(sock: socket.socket) -> None:
        try:
            while sock.recv(FRAME + 2, socket.MSG_DONTWAIT):
                pass
        except BlockingIOError:
            return
        raise ConnectionResetError

    def settle(self) -> None:
        """Wait until the coordinator has handled every message so far, or has ended the connection."""
        try:
            if self._socket is not None:
                self._socket.send(b"\0" + _pack([Kind.PING]))
                while True:
                    answer = self._socket.recv(FRAME + 2)
                    if not answer:
                        raise ConnectionResetError
                    if answer == b"\0" + _pack([Kind.PONG]):
                        return
        except OSError:
            self.thrown_out += 1
            self.leave()

    def leave(self) -> None:
        """Disconnect."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def connect(path: str) -> socket.socket:
    """Return a connection on which HELLO was said."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Not settimeout, which would wait in spite of MSG_DONTWAIT.
    for bound in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, bound, struct.pack("ll", int(BOUND_S), 0))
    sock.connect(path)
    sock.send(b"\0" + _pack([Kind.HELLO, VERSION]))
    assert msgpack.unpackb(sock.recv(FRAME + 2)[1:])[0] == Kind.WELCOME
    return sock


def _pack(value: Any) -> bytes:
    data: bytes = msgpack.packb(value)
    return data


def frames(message: Message) -> Iterator[bytes]:
    """Yield the frames of a message."""
    head, rest = message if isinstance(message, tuple) else (message, b"")
    first, view = FRAME - len(head) if rest else FRAME, memoryview(rest or head)
    head = head if rest else b""
    yield (b"\1" if first < len(view) else b"\0") + head + view[:first]
    for at in range(first, len(view), FRAME):
        yield (b"\1" if at + FRAME < len(view) else b"\0") + view[at : at + FRAME]


@cache
def _repeated(items: bytes, count: int, head: bytes = b"", tail: bytes = b"") -> bytes:
    return head + items * count + tail


def _array(items: bytes, count: int, head: bytes = b"") -> bytes:
    return _repeated(items, count, head + b"\xdd" + count.to_bytes(4, "big"))


def _with_payload(fields: list[Any], payload: bytes) -> Message:
    """Return a message that ends with a payload."""
    packed = _pack(fields)
    return bytes([packed[0] + 1]) + packed[1:] + b"\xc6" + len(payload).to_bytes(4, "big"), payload


@cache
def _call() -> bytes:
    """Return a function and its argument of 32 MiB."""
    return _pack([[], cloudpickle.dumps((len, (b"x" * (32 * _MIB),), {}))])


@cache
def _numbers() -> bytes:
    return _pack([Kind.RELEASE, [2**63 - 1 - n for n in range(7000)]])


@cache
def _keys() -> bytes:
    return b"\x92\x08" + _pack({f"{n:x}": n for n in range(7000)})


def _load(request: int, graph: bytes) -> Message:
    fields = [Kind.LOAD, request, "g", ["cpu"], 0]
    return _with_payload(fields, graph) if len(graph) > FRAME else _pack([*fields, graph])


def _wire(**changes: Any) -> dict[str, Any]:
    """Return the wire form of y = relu(x)."""
    node = ["eltwise", "n", [0], [1], {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}, *_NOTHING]
    wire: dict[str, Any] = {"name": "g", "engine": "cpu", "fpmath_mode": "strict"}
    wire |= {"values": [[[4], "f32"]] * 2, "inputs": [["x", 0]], "outputs": [["y", 1]]}
    return {**wire, "constants": [], "nodes": [node], **changes}


@cache
def _chain(count: int, name: str, *, distinct: bool = False) -> bytes:
    """Return a packed graph of so many nodes in a chain, or side by side on shapes of their own."""
    attributes = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
    if not distinct:
        nodes = [["eltwise", name, [i], [i + 1], attributes, *_NOTHING] for i in range(count)]
        values = [[[4], "f32"]] * (count + 1)
        return _pack(_wire(nodes=nodes, values=values, outputs=[["y", count]]))
    nodes = [["eltwise", name, [i], [count + i], attributes, *_NOTHING] for i in range(count)]
    values = [[[1, 2, i + 3], "f32"] for i in range(count)] * 2
    ports = ([[f"{name}{i}", first + i] for i in range(count)] for first in (0, count))
    return _pack(_wire(nodes=nodes, values=values, inputs=next(ports), outputs=next(ports)))


@cache
def _values(count: int) -> bytes:
    """Return a packed graph with so many values and a mistake behind them."""
    return _pack(_wire(values=[[[4], "f32"]] * count, outputs=[["y", -1]]))


@cache
def _constants(count: int) -> bytes:
    """Return a packed graph of products with so many constants, which a worker would reorder."""
    nodes = [["matmul", "n", [0, 1 + i], [1 + count + i], {}, *_NOTHING] for i in range(count)]
    values = [[[2, 16], "f32"], *[[[16, 16], "f32"]] * count, *[[[2, 16], "f32"]] * count]
    constants = [[1 + i, 1024] for i in range(count)]
    outputs = [["y", 2 * count]]
    return _pack(_wire(nodes=nodes, values=values, constants=constants, outputs=outputs))


#: Name of a kind -> its message number i.
KINDS: Final[dict[str, Callable[[int], Message]]] = {
    # No message of the protocol
    "garbage": lambda i: b"\xc1" * 100,
    "empty lists": lambda i: _array(b"\x90", 8 * _MIB, b"\x93\x03\x01\x81\xa1a"),
    "empty tables": lambda i: _array(b"\x80", 8 * _MIB, b"\x93\x03\x01\x81\xa1a"),
    "empty lists in a frame": lambda i: _array(b"\x90", 65_000, b"\x92\x08"),
    "announced lists": lambda i: _repeated(b"\xdd\x00\xff\xff\xff", 500, b"\x92\x08"),
    "depth": lambda i: _repeated(b"\x91", 60_000, b"\x92\x08", b"\x90"),
    "texts": lambda i: _array(b"\xa2ab", 20_000, b"\x92\x08"),
    "numbers": lambda i: _numbers(),
    "keys": lambda i: _keys(),
    # Messages of the protocol that ask for much
    "pings": lambda i: _pack([Kind.PING]),
    "statistics": lambda i: _pack([Kind.STATISTICS, i]),
    "slots": lambda i: _pack([Kind.ALLOCATE, i, [64] * 1024]),
    "calls": lambda i: _with_payload([Kind.CALL, i, 0, 0], _call()),
    "calls that raise what they got": lambda i: _with_payload([Kind.CALL, i, 0, 0], _repeated(b"x", 8 * _MIB, b"\x90")),
    "functions": lambda i: _with_payload([Kind.FUNCTION, i + 1], _repeated(b"x", 8 * _MIB)),
    "functions discarded": lambda i: _pack([Kind.FUNCTION, 1, b"x"]) if i % 2 else _pack([Kind.DISCARD, 1]),
    "withdrawals": lambda i: _pack([Kind.WITHDRAW, i, i]),
    "messages about nothing": lambda i: _pack([Kind.UNLOAD if i % 2 else Kind.CANCEL, i]),
    # Graphs
    "graph of lists": lambda i: _load(i, _array(b"\x90", 8 * _MIB, b"\x81\xa5nodes")),
    "graph of depth": lambda i: _load(i, _repeated(b"\x91", 8 * _MIB, b"", b"\x90")),
    "graph of announced lists": lambda i: _load(i, _repeated(b"\xdd\x00\x0f\x00\x00", 100_000)),
    "graph of values": lambda i: _load(i, _values(80_000)),
    "graph of names": lambda i: _load(i, _chain(5000, "n" * 4000)),
    "graph with a long name": lambda i: _load(i, _chain(4, "n" * (8 * _MIB))),
    "graph of nodes": lambda i: _load(i, _chain(20_000, "n")),
    "graph of shapes": lambda i: _load(i, _chain(2000, "n", distinct=True)),
    "graph of constants": lambda i: _load(i, _constants(5000)),
    "small graphs": lambda i: _load(i, _pack(_wire())),
}


def attack(path: str, name: str, count: int, seconds: float) -> int:
    """Send so many messages of a kind, or as many as the time allows; return their number."""
    attacker = Attacker(path)
    until = time.monotonic() + seconds
    sent = 0
    while sent < count and time.monotonic() < until:
        attacker.send(frames(KINDS[name](sent)))
        if attacker.thrown_out or not sent:
            attacker.settle()  # messages after one that is refused are not looked at
        sent += 1
    attacker.settle()
    attacker.leave()
    return sent


if __name__ == "__main__":
    # Starting takes a processor: a program that measures waits for this line.
    KINDS[sys.argv[2]](0)
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.monotonic()
    count = attack(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    print(count, time.monotonic() - begin)
