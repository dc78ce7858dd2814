"""A process that has imported everything and forks actors, so that they start in milliseconds.

Actors belong to its process group, so one signal ends them all, stopped and forked ones too; if the process that plays the
drill has exited, the fork server sends that signal itself.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .actor import Job, act

_ROOT: Final = Path(__file__).resolve().parents[2]
#: Bound, in seconds, on the start of an actor, and longest job, in bytes.
_ANSWER_S: Final = 30.0
_LONGEST_JOB: Final = 1 << 20


class ForkServer:
    """Fork actors until the end of the block, then end those that are still there."""

    def __init__(self) -> None:
        self._control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(_ANSWER_S)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.drills.fork_server", str(its.fileno())],
                cwd=_ROOT,
                pass_fds=(its.fileno(),),
                start_new_session=True,
            )

    def fork(self, job: Job, results: Path, pipe: socket.socket) -> int:
        """Start an actor with one end of a pipe; return its process id."""
        message = json.dumps({**asdict(job), "results": str(results)}).encode()
        socket.send_fds(self._control, [message], [pipe.fileno()])
        return int(self._control.recv(64))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._control.close()


def main(control: socket.socket) -> None:
    """Fork one actor for each message; leave, and take all actors along, when there will be no more."""
    # The kernel reaps ended actors; their status is not needed, since the successful ones report it.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, pipes, _, _ = socket.recv_fds(control, _LONGEST_JOB, 1)
        if not message:
            os.killpg(0, signal.SIGKILL)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            # A process that ends without `done` has failed; its traceback goes to standard error.
            with socket.socket(fileno=pipes[0]) as pipe:
                job = json.loads(message)
                results = job.pop("results")
                slow = {int(key): seconds for key, seconds in job.pop("slow").items()}
                act(Job(**{**job, "slow": slow, "forks": tuple(job["forks"])}), results, pipe)
            sys.exit()
        os.close(pipes[0])
        control.send(str(pid).encode())


if __name__ == "__main__":
    # What is imported here need not be imported by each actor.
    for name in ("redis", "poolrt.cachestore.single_creator", "poolrt.cachestore.redis.link"):
        importlib.import_module(name)
    main(socket.socket(fileno=int(sys.argv[1])))
