"""A TCP proxy between actors and a server: it can swallow everything for a while, be slow, damage replies, or lead elsewhere."""

from __future__ import annotations

import math
import random
import socket
import threading
import time
from types import TracebackType
from typing import Final, Self

#: Bound, in seconds, on reaching the server, and on the end of a thread.
_CONNECT_S: Final = 5.0
_JOIN_S: Final = 5.0
_CHUNK: Final = 1 << 16


class Proxy:
    """Forward connections to 127.0.0.1:`port` to the unix socket at `target`.

    While it holds, nothing is forwarded in either direction and nothing is closed: to both sides the other one is
    silent. What was sent meanwhile arrives once it flows again, as after a network's outage. With `bytes_per_s` no
    connection carries more than that in either direction; `delay_s` is what everything takes each way. Of the pieces that
    the server sends, a share of `damaged` has one bit flipped, drawn with `seed`.
    """

    def __init__(
        self, target: str, bytes_per_s: float = math.inf, delay_s: float = 0.0, damaged: float = 0.0, seed: int = 0
    ) -> None:
        self._target = target
        self._bytes_per_s = bytes_per_s
        self._delay_s = delay_s
        self._damaged = damaged
        self._random = random.Random(seed)
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._open = True
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._start(self._accept)

    @property
    def url(self) -> str:
        """Where actors find it."""
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}"

    def hold(self) -> None:
        """Swallow everything from now on."""
        self._flowing.clear()

    def flow(self) -> None:
        """Forward again, the held bytes first."""
        self._flowing.set()

    def lead_to(self, target: str) -> None:
        """Break all connections; new ones go to another server."""
        self._target = target
        self._break()

    def close(self) -> None:
        """Break all connections, and take no more."""
        self._open = False
        self._flowing.set()
        # A shutdown wakes the thread that accepts; a close alone would not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._break()
        for thread in self._threads:
            thread.join(_JOIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _flipped(self, data: bytes) -> bytes:
        changed = bytearray(data)
        changed[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
        return bytes(changed)

    def _start(self, target: object, *arguments: socket.socket | float) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _break(self) -> None:
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for one in sockets:
            _end(one)

    def _accept(self) -> None:
        while self._open:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            # As Redis does with its own: a second short answer would otherwise wait for the first one's acknowledgement.
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            far = socket.socket(socket.AF_UNIX)
            far.settimeout(_CONNECT_S)
            try:
                far.connect(self._target)
            except OSError:
                near.close()
                far.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._sockets += [near, far]
            self._start(self._forward, near, far, 0.0)
            self._start(self._forward, far, near, self._damaged)

    def _forward(self, source: socket.socket, sink: socket.socket, damaged: float) -> None:
        try:
            while data := source.recv(_CHUNK):
                self._flowing.wait()
                time.sleep(self._delay_s + len(data) / self._bytes_per_s)
                if self._random.random() < damaged:
                    data = self._flipped(data)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            self._flowing.wait()
            _end(source)
            _end(sink)


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    connection.close()
