"""A redis-server of the tests' own, which can be killed, frozen and started again."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from poolrt.cachestore.redis.server_binary import find_server

#: Bound, in seconds, on starting.
START_S = 10.0


class RedisServer:
    """One server in `folder`, on a unix socket."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self._socket = folder / "s"
        self._command = [
            find_server(None), "--port", "0", "--unixsocket", str(self._socket), "--dir", str(folder), "--save", "",
            *settings,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"unix://{self._socket}"

    def client(self) -> Any:
        """Return a plain client."""
        import redis

        return redis.Redis(unix_socket_path=str(self._socket), socket_timeout=5.0)

    def start(self) -> None:
        """Start it and wait for its answer."""
        import redis

        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        with self.client() as client:
            while time.monotonic() < deadline:
                try:
                    client.ping()
                    return
                except redis.ConnectionError:
                    time.sleep(0.005)
        raise TimeoutError("the test's redis-server does not answer")

    def kill(self) -> None:
        """Kill it as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Stop it without closing anything."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
