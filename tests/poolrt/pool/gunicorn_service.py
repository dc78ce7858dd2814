"""A service of gunicorn that listens at a path, and requests to it."""

from __future__ import annotations

import http.client
import importlib.util
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from .processes import wait_until

#: Seconds until all workers of a cold service are ready, on a busy machine, and until a request is answered.
READY_S: Final = 100.0
_END_S: Final = 60.0

needs_gunicorn = pytest.mark.skipif(importlib.util.find_spec("gunicorn") is None, reason="gunicorn is not installed")


class _OverUnix(http.client.HTTPConnection):
    """A connection to a service that listens at a path."""

    def __init__(self, path: Path) -> None:
        super().__init__("service", timeout=READY_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the path."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(READY_S)
        self.sock.connect(str(self._path))


def ask(path: Path, query: str) -> str:
    """Return the service's answer to a query."""
    connection = _OverUnix(path)
    try:
        connection.request("GET", f"/?{query}")
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
    finally:
        connection.close()
    return text


def listens(path: Path) -> bool:
    """Return whether a service listens at a path."""
    connection = _OverUnix(path)
    try:
        connection.connect()
    except (FileNotFoundError, ConnectionRefusedError):  # not yet, or not quite: its file is there before it listens
        return False
    finally:
        connection.close()
    return True


@contextmanager
def service(
    path: Path, *words: str, folder: Path, environment: Mapping[str, str], ready: Callable[[], bool]
) -> Iterator[None]:
    """Run gunicorn in a folder during the block, once it is ready: the service ``service`` there, which listens at ``path``.

    Its log is beside the path. It must end with status 0 and no traceback.
    """
    log = path.with_name(f"{path.name}.log")
    command = [sys.executable, "-m", "gunicorn", *words, "--no-control-socket", "service:application"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=file)
    try:
        wait_until(lambda: process.poll() is not None or ready(), "the service is ready", READY_S)
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(_END_S) == 0
        assert "Traceback" not in log.read_text(encoding="utf-8")
    except BaseException:
        print(log.read_text(encoding="utf-8"), file=sys.stderr)
        raise
    finally:
        process.kill()
        process.wait(_END_S)
