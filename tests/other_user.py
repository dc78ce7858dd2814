"""Another user of this machine: a program that gives up root's rights, and a server of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

#: The other user; no account needs to exist.
OTHER: Final = 12345

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")

#: Begins every program, which imports as root: the other user may not reach the interpreter's files.
_BEGIN: Final = f"""
import encodings.idna, os, select, shlex, socket, sys
def drop(user={OTHER}, group={OTHER}):
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
"""
_SERVE: Final = """
path, kind, own = sys.argv[1], getattr(socket, sys.argv[2]), sys.argv[3] == "own"
server = socket.socket(socket.AF_UNIX, kind)
if own:
    drop()
    os.mkdir(os.path.dirname(path), 0o755)
server.bind(path)
os.chmod(path, 0o777)
if not own:
    drop()
server.listen()
print("listening", flush=True)
clients, received = [], 0
while sys.stdin not in (ready := select.select([sys.stdin, server, *clients], [], [])[0]):
    for sock in ready:
        if sock is server:
            clients.append(server.accept()[0])
            continue
        data = sock.recv(1 << 16)
        received += len(data)
        if not data:
            clients.remove(sock)
            sock.close()
        elif kind is socket.SOCK_STREAM:
            sock.sendall(b"+PONG\\r\\n")
if own:
    os.unlink(path)
    os.rmdir(os.path.dirname(path))
print(received, flush=True)
"""


def run_as_other(code: str, *words: str) -> str:
    """Run statements as the other user, after those before a line `drop()`; return what they print."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + code, *words], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


class ForeignServer:
    """A server of the other user at `path`: in a folder that it makes, or, unless `own`, in one that exists."""

    def __init__(self, path: str | Path, kind: str = "SOCK_STREAM", own: bool = True) -> None:
        words = [str(path), kind, "own" if own else "given"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN + _SERVE, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._received: int | None = None
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "listening\n"

    def received(self) -> int:
        """End the server; return how many bytes it has received."""
        if self._received is None:
            self._received = int(self._process.communicate("\n", timeout=30)[0])
        return self._received

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.received()
        finally:
            self._process.kill()
            self._process.communicate()
