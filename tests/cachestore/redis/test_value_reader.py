"""Values read from the socket: whole, from pieces of any size; the client reads every reply that is not plain."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore.redis.value_reader import ValueReader
from tests.cachestore.server import RedisServer

FIELDS = ("HMGET", "meta", "generation", "revision")
#: Bounds, in seconds, on an answer that comes, however busy the machine is, and on one that does not.
PATIENT_S = 10.0
SILENT_S = 0.2


class Connection:
    """What the reader uses of a client's connection: a socket and a way to close it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def disconnect(self) -> None:
        """Close it."""
        self._sock.close()


class Script:
    """A server of one answer: sends the given pieces to each client, and closes the connection then if asked to."""

    def __init__(self) -> None:
        self.made = 0
        self._threads: list[threading.Thread] = []
        self._ends: list[socket.socket] = []

    def connect(self, *pieces: bytes, close: bool = False, timeout_s: float = PATIENT_S) -> Callable[[], Connection]:
        """Return what makes a connection to it."""

        def make() -> Connection:
            self.made += 1
            ours, theirs = socket.socketpair()
            ours.settimeout(timeout_s)
            self._ends.append(theirs)
            thread = threading.Thread(target=self._serve, args=(theirs, pieces, close))
            thread.start()
            self._threads.append(thread)
            return Connection(ours)

        return make

    def _serve(self, end: socket.socket, pieces: tuple[bytes, ...], close: bool) -> None:
        with contextlib.suppress(OSError):
            while end.recv(4096):
                for piece in pieces:
                    end.sendall(piece)
                if close:
                    end.close()

    def close(self) -> None:
        """Close every connection and wait for the threads."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(5.0)


@pytest.fixture
def script() -> Iterator[Script]:
    """Return a server."""
    server = Script()
    yield server
    server.close()


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Any]:
    """Return a client of a real server that has a hash and some values."""
    with redis_server.client() as client:
        client.hset("meta", mapping={"generation": 5})
        yield client
        client.delete("meta", "v:0", "v:1", "v:2")


def connector(client: Any) -> Callable[[], Any]:
    """Return what makes a real connection."""

    def connect() -> Any:
        pool = client.connection_pool
        connection = pool.connection_class(**{**pool.connection_kwargs, "protocol": 2})
        connection.connect()
        return connection

    return connect


@pytest.mark.parametrize("size", [0, 1, 5000, 300_000, 5_000_000])
def test_fields_and_values_come_back_as_they_are(client: Any, size: int) -> None:
    values = [os.urandom(size), os.urandom(size // 2)]
    client.set("v:0", values[0])
    client.set("v:1", values[1])
    reader = ValueReader(connector(client), *FIELDS)
    for _ in range(3):
        assert reader.read(["v:0", "v:2", "v:1"]) == ([b"5", None], [values[0], None, values[1]])
    reader.close()


def test_a_changed_field_is_noticed(client: Any) -> None:
    reader = ValueReader(connector(client), *FIELDS)
    first, again = reader.read([]), reader.read([])
    assert first is not None
    assert again is not None
    assert first[0] is again[0]
    client.hset("meta", mapping={"generation": 6, "revision": 70})
    assert reader.read([]) == ([b"6", b"70"], [])
    reader.close()


def test_a_connection_is_used_again(client: Any) -> None:
    made = []

    def connect() -> Any:
        made.append(1)
        return connector(client)()

    reader = ValueReader(connect, *FIELDS)
    for _ in range(10):
        assert reader.read(["v:0"]) is not None
    assert len(made) == 1
    reader.close()


def test_an_error_is_left_to_the_client_and_the_connection_is_given_up(client: Any) -> None:
    client.lpush("v:0", "a list")
    reader = ValueReader(connector(client), *FIELDS)
    assert reader.read(["v:0", "v:1"]) is None
    client.delete("v:0")
    # An answer that came after the error would now be taken for that of the next question.
    assert reader.read(["v:0"]) == ([b"5", None], [None])
    reader.close()


@pytest.mark.parametrize("cut", range(1, 45, 3))
def test_an_answer_may_come_in_any_pieces(script: Script, cut: int) -> None:
    answer = b"*2\r\n$1\r\n5\r\n$-1\r\n$10\r\n0123456789\r\n$-1\r\n"
    reader = ValueReader(script.connect(answer[:cut], answer[cut:]), *FIELDS)
    assert reader.read(["a", "b"]) == ([b"5", None], [b"0123456789", None])
    reader.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"*3\r\n$-1\r\n$-1\r\n$-1\r\n",
        b"*2\r\n$-1\r\n$-1\r\n:5\r\n",
        b"*2\r\n$-1\r\n$-1\r\n$x\r\n",
        b"*2\r\n$-1\r\n$-1\r\n$-2\r\n",
        b"*2\r\n$-1\r\n$-1\r\n$2\r\nabcdef\r\n",
        b"*2\r\n$-1\r\n$-1\r\n$999999999999\r\n",
        b"*2\r\n$-1\r\n$-1\r\n$" + b"1" * 100 + b"\r\n",
        b"HTTP/1.1 400 Bad Request" * 10,
        b"\0" * 1000,
    ],
)
def test_what_is_not_plain_is_left_to_the_client(script: Script, answer: bytes) -> None:
    reader = ValueReader(script.connect(answer), *FIELDS)
    assert reader.read(["a"]) is None
    assert reader.read(["a"]) is None
    assert script.made == 2
    reader.close()


def test_more_than_was_asked_for_ends_the_connection(script: Script) -> None:
    reader = ValueReader(script.connect(b"*2\r\n$-1\r\n$-1\r\n$1\r\na\r\n$1\r\nb\r\n"), *FIELDS)
    assert reader.read(["a"]) == ([None, None], [b"a"])
    reader.read(["a"])
    assert script.made == 2
    reader.close()


def test_a_closed_connection_is_left_to_the_client(script: Script) -> None:
    reader = ValueReader(script.connect(b"*2\r\n$-1\r\n$-1\r\n$10\r\nabc", close=True), *FIELDS)
    assert reader.read(["a"]) is None


def test_silence_ends_in_time_and_the_late_answer_is_never_read(script: Script) -> None:
    reader = ValueReader(script.connect(b"*2\r\n$-1\r\n$-1\r\n$10\r\nabc", timeout_s=SILENT_S), *FIELDS)
    with pytest.raises(TimeoutError):
        reader.read(["a"])
    with pytest.raises(TimeoutError):
        reader.read(["a"])
    assert script.made == 2


def test_threads_get_their_own_values(client: Any) -> None:
    values = {f"v:{number}": bytes([number]) * 20_000 for number in range(3)}
    for name, value in values.items():
        client.set(name, value)
    reader = ValueReader(connector(client), *FIELDS)
    wrong: list[object] = []

    def work(name: str) -> None:
        for _ in range(100):
            answer = reader.read([name])
            if answer is None or answer[1] != [values[name]]:
                wrong.append(answer)

    threads = [threading.Thread(target=work, args=(name,)) for name in values for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    reader.close()


def test_silence_of_a_frozen_server_ends_in_time(own_server: RedisServer, tmp_path: Path) -> None:
    with own_server.client() as client:
        made: list[Any] = []

        def connect() -> Any:
            made.append(connector(client)())
            return made[-1]

        reader = ValueReader(connect, *FIELDS)
        assert reader.read(["a"]) == ([None, None], [None])
        own_server.freeze()
        made[0]._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, int(SILENT_S * 1e6)))
        with pytest.raises(TimeoutError):
            reader.read(["a"])
        own_server.thaw()
        assert reader.read(["a"]) == ([None, None], [None])
        reader.close()
