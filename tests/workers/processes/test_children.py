"""The children of a fork server: forked, waited for, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NoReturn

import pytest

from poolrt.workers.processes.children import Children

BOUND_S = 30.0


@pytest.fixture
def children() -> Iterator[Children]:
    found = Children()
    yield found
    found.end(0.0)


def _exit() -> NoReturn:
    os._exit(0)


def _stay() -> NoReturn:
    while True:
        signal.pause()


def _is_child(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def test_a_child_that_has_exited_is_a_zombie_until_it_is_reaped(children: Children) -> None:
    pid, other = children.fork(_exit), children.fork(_stay)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert _is_child(pid)
    children.reap()
    assert not _is_child(pid)
    assert _is_child(other)
    assert children.end(0.0)


def test_the_end_waits_for_children_that_exit_and_kills_none(children: Children) -> None:
    pids = [children.fork(_exit) for _ in range(3)]
    assert not children.end(BOUND_S)
    assert not any(map(_is_child, pids))


def test_the_end_kills_children_that_stay(children: Children) -> None:
    pids = [children.fork(_exit), children.fork(_stay), children.fork(_stay)]
    assert children.end(0.05)
    deadline = time.monotonic() + BOUND_S
    while any(map(_is_child, pids)):  # killed ones need a processor to exit
        assert time.monotonic() < deadline
        children.reap()
    assert not children.end(0.0)


def test_children_that_another_part_of_the_process_has_waited_for_are_gone(children: Children) -> None:
    pid = children.fork(_exit)
    os.waitpid(pid, 0)
    children.reap()
    assert not children.end(0.0)


def test_a_child_prints_nothing_of_its_parents_again_and_never_returns() -> None:
    program = """
import os, sys
from poolrt.workers.processes.children import Children

sys.stdout.write("before ")
children = Children()
def run():
    print("child ", end="", flush=True)
def fail():
    raise ValueError
children.fork(run), children.end(30)
children.fork(fail), children.end(30)
print("after")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=BOUND_S, check=True)
    assert done.stdout == "before child after\n"
