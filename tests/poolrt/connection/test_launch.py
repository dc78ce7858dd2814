"""The end of a coordinator, interrupted at any moment: the interrupt is raised, and no process is left."""

from __future__ import annotations

import os
import signal
import time

import pytest

from poolrt.connection.launch import Coordinator
from tests.interrupting import is_interrupted


def test_an_interrupt_at_any_moment_of_the_end_is_raised_and_the_end_may_be_repeated() -> None:
    moments, interrupted = 0, True
    while interrupted:
        # A process that exits at once, as a coordinator does whose client has disconnected
        pid = os.posix_spawn("/bin/true", ["true"], {})
        coordinator = Coordinator(pid)
        interrupted = is_interrupted(coordinator.end, 1 + moments, "/poolrt/connection/launch.py")
        moments += 1
        coordinator.end()
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)
    assert moments > 6


def test_a_thread_that_asks_for_the_signal_while_another_one_ends_the_coordinator_gets_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
    coordinator = Coordinator(pid)
    sleep = time.sleep

    def end_meanwhile(seconds: float) -> None:
        coordinator.pid = 0  # as another thread's `end` does
        sleep(seconds)

    try:
        monkeypatch.setattr(time, "sleep", end_meanwhile)
        assert coordinator.ending() == ""
    finally:
        monkeypatch.undo()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
