"""The processes that a fork server has forked and has not waited for yet."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn


class Children:
    """Forks children and waits for them. A child that has exited is a zombie until `reap` or `end`.

    Only a process with one thread may fork. A process id here is a child's until then: no other process can have it.
    """

    def __init__(self) -> None:
        self._pids: set[int] = set()

    def fork(self, run: Callable[[], NoReturn]) -> int:
        """Fork a child that calls ``run``, which ends it; return its process id. Raises OSError if there can be none."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # the child would print the same again
        pid = os.fork()
        if not pid:
            try:
                self._pids.clear()
                run()
            finally:
                os._exit(1)
        self._pids.add(pid)
        return pid

    def reap(self) -> None:
        """Wait for the children that have exited."""
        self._pids = {pid for pid in self._pids if not _has_exited(pid)}

    def end(self, grace_s: float) -> bool:
        """Wait until all have exited, kill those that take more than ``grace_s`` seconds; return whether there were any.

        The wait for those that are killed is as long at most.
        """
        until = time.monotonic() + grace_s
        late = [pid for pid in self._pids if not _wait_until(pid, until)]
        for pid in late:
            os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + grace_s
        self._pids = {pid for pid in late if not _wait_until(pid, until)}
        return bool(late)


def _has_exited(pid: int) -> bool:
    """Return whether a child has exited; then it is no child any more."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _wait_until(pid: int, until: float) -> bool:
    """Wait until a child has exited, or a point of time; return whether it has."""
    if _has_exited(pid):
        return True
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False  # no descriptor is free
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        while not _has_exited(pid):
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            poll.poll(left_s * 1000)
        return True
    finally:
        os.close(pidfd)
