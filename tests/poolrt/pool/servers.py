"""Servers of tests that are killed and started again at the same path."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .processes import BOUND_S, connects, wait_until

_PROGRAM = """
import sys
from poolrt.coordinator.entry import serve_path
from poolrt.settings import Settings
path, home, redis, workers = sys.argv[1:]
sys.exit(serve_path(path, Settings.load(workers=int(workers), threads=1, home=home, redis_url=redis, arena_bytes=64 << 20)))
"""


class Server:
    """The server at ``path``: a process that can be killed and replaced."""

    def __init__(self, path: Path, settings: dict[str, Any], workers: int) -> None:
        self.path = path
        self._command = [
            sys.executable,
            "-c",
            _PROGRAM,
            str(path),
            settings["home"],
            settings["redis_url"],
            str(workers),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process; 0 if there is none."""
        return 0 if self._process is None else self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start it; with ``wait``, return when it listens."""
        self._process = subprocess.Popen(self._command, env={**os.environ, "POOLRT_SOCKET": ""})
        if wait:
            wait_until(lambda: connects(self.path), "the server listens")

    def kill(self) -> None:
        """Kill it with SIGKILL, if there is one, and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(BOUND_S)
            self._process = None


@contextmanager
def started(path: Path, settings: dict[str, Any], workers: int = 1) -> Iterator[Server]:
    """Run a server during the block, and kill it at the end."""
    server = Server(path, settings, workers)
    server.start()
    try:
        yield server
    finally:
        server.kill()
