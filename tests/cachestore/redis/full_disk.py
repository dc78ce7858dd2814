"""A server whose last write to its disk has failed, as clients see it: it answers any command with that."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from poolrt.cachestore.redis.embedded import EmbeddedServer

#: What Redis 6 and Valkey 8 answer.
REFUSAL = "MISCONF Errors writing to the AOF file: No space left on device"


@contextmanager
def full_disk(server: EmbeddedServer) -> Iterator[None]:
    """Listen at the socket of a server that does not run."""
    os.makedirs(os.path.dirname(server.socket_path), 0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(server.socket_path)
        listener.listen()
        thread = threading.Thread(target=_refuse, args=(listener,))
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            os.unlink(server.socket_path)


def _refuse(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(64)
            connection.sendall(f"-{REFUSAL}\r\n".encode())
