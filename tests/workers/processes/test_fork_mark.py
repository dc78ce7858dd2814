"""The mark of a process, which no process has that is forked from it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import pytest

from poolrt.workers.processes.fork_mark import ForkMark


def _forked_by_c() -> int:
    return int(ctypes.CDLL(None).fork())


def _exit_status(fork: Callable[[], int], mark: ForkMark) -> int:
    """Return 1 if the mark says in a forked process that it is the one that made it, else 0."""
    pid = fork()
    if not pid:
        os._exit(int(mark.is_here()))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("fork", [os.fork, _forked_by_c], ids=["Python", "C"])
def test_a_forked_process_does_not_have_the_mark(fork: Callable[[], int]) -> None:
    mark = ForkMark()
    assert mark.is_here()
    assert _exit_status(fork, mark) == 0
    assert mark.is_here()


def test_a_process_forked_from_a_forked_one_does_not_have_its_mark() -> None:
    def fork_twice() -> int:
        pid = os.fork()
        if not pid:
            inner = ForkMark()
            os._exit(_exit_status(os.fork, inner) + 2 * (not inner.is_here()))
        return pid

    pid = fork_twice()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_without_help_of_the_kernel_the_number_of_the_process_decides() -> None:
    mark = ForkMark()
    mark.byte = b"\0"
    assert mark.is_here()
    assert _exit_status(os.fork, mark) == 0
