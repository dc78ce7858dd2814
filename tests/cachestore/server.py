"""A redis-server of the tests' own, which can be killed, frozen and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from poolrt.cachestore.redis.server_binary import find_server

#: Bound, in seconds, on starting.
START_S = 10.0


class RedisServer:
    """One server in `folder`, on a unix socket.

    `settings` are arguments for its program and come after ours, `environment` are variables that it gets in addition,
    `program` is another one than the default.
    """

    def __init__(
        self, folder: Path, *settings: str, environment: dict[str, str] | None = None, program: str | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._socket = folder / "s"
        self._command = [
            find_server(program), "--port", "0", "--unixsocket", str(self._socket), "--dir", str(folder), "--save", "",
            *settings,
        ]  # fmt: skip
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except TimeoutError:
            self.kill()
            raise

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"unix://{self._socket}"

    def client(self) -> Any:
        """Return a plain client."""
        import redis

        return redis.Redis(unix_socket_path=str(self._socket), socket_timeout=5.0)

    def spawn(self, *settings: str) -> None:
        """Start it, with more settings for this time, and do not wait until it answers."""
        self._process = subprocess.Popen(
            [*self._command, *settings], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=self._environment
        )

    def start(self) -> None:
        """Start it and wait for its answer."""
        self.spawn()
        self.await_answer()

    def await_answer(self) -> None:
        """Wait until it answers."""
        import redis

        deadline = time.monotonic() + START_S
        with self.client() as client:
            while time.monotonic() < deadline:
                try:
                    client.ping()
                    return
                except (redis.ConnectionError, redis.TimeoutError):
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
