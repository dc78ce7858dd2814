"""Processes of their own for all that touches OpenCL: a test process must stay fit to be forked.

A server answers one JSON line with another; what it computes goes through files. Every wait has a bound.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
#: Seconds that a server may take for one answer: compiling all kernels of an operation takes a few on a busy machine.
ANSWER_S: Final = 100.0


class Server:
    """A process that runs ``python -m module arguments`` and answers requests one at a time."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        self._received = b""
        #: Answers that have not come: one that took too long comes later, before those to other requests.
        self._due = 0

    def ask(self, request: Any) -> Any:
        """Return the answer to a request. Raises AssertionError where it failed, the process died or took too long."""
        stdin, stdout = self._child.stdin, self._child.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.flush()
        self._due += 1
        until = time.monotonic() + ANSWER_S
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while self._received.count(b"\n") < self._due:
                assert selector.select(max(0.0, until - time.monotonic())), f"no answer to {request} in {ANSWER_S:g} s"
                chunk = os.read(stdout.fileno(), 1 << 16)
                assert chunk, f"the process ended with status {self._child.wait(10)} at {request}"
                self._received += chunk
        reply = json.loads(self._received.splitlines()[-1])
        self._received, self._due = b"", 0
        assert "error" not in reply, reply["error"]
        return reply["answer"]

    def close(self) -> None:
        """End the process."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait(20)
        self._child.stdout.close()


def serve(answer: Callable[[Any], Any]) -> None:
    """Answer the requests on standard input until it closes. What drivers print goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            reply = {"answer": answer(json.loads(line))}
        except Exception:  # noqa: BLE001 - raised again where the request came from
            reply = {"error": traceback.format_exc()}
        out.write(json.dumps(reply) + "\n")
        out.flush()


def python(code: str, env: Mapping[str, str] | None = None) -> str:
    """Return what a new interpreter prints for ``code``. Raises AssertionError where it fails."""
    child = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout
