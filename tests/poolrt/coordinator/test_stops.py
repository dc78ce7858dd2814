"""Stops of processes: a look finds one, and knows it from the next."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from poolrt.coordinator.stops import find_stop
from tests.poolrt.pool.processes import wait_until


@pytest.fixture
def pid() -> Iterator[int]:
    """A process that sleeps."""
    with subprocess.Popen(["sleep", "60"]) as process:
        wait_until(lambda: _state(process.pid) == "S", "it sleeps")
        yield process.pid
        process.kill()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def test_a_process_that_sleeps_or_has_exited_is_not_stopped(pid: int) -> None:
    assert find_stop(pid) is None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: _state(pid) == "Z", "it has ended")
    assert find_stop(pid) is None
    assert find_stop(1 << 29) is None


def test_looks_find_one_stop_until_the_process_goes_on_and_another_one_then(pid: int) -> None:
    found = []
    for _ in range(3):
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: _state(pid) == "T", "it is stopped")
        found.append(find_stop(pid))
        assert found[-1] is not None
        assert find_stop(pid) == found[-1]
        assert str(found[-1]) == "stopped by a signal"
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: _state(pid) == "S", "it goes on")
    assert len(set(found)) == 3
