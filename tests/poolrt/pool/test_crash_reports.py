"""A process that crashes is reported with the signal that ended it, and with its stack."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import poolrt
from poolrt.coordinator.exits import describe_signal, signal_of_zombie
from poolrt.errors import CoordinatorLost, WorkerLost

from .processes import BOUND_S, is_alive, wait_until


def test_the_errors_of_lost_processes_name_the_signal(
    settings: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        coordinator = pool.stats()["pid"]
        # When a function crashes its worker
        with pytest.raises(WorkerLost, match=r"it was ended by SIGSEGV \(an invalid address\)"):
            pool.submit(_crash).result()
        # And when the coordinator is killed
        os.kill(coordinator, signal.SIGKILL)
        with pytest.raises(CoordinatorLost) as lost:
            pool.stats()
    # Then the error names the signal, and no lines, which there are none of
    assert str(lost.value) == (
        "the coordinator has exited: it was ended by SIGKILL, which another process has sent, or the kernel when memory ran "
        "out; make a new pool"
    )
    printed = capfd.readouterr().err
    assert "Segmentation fault" in printed  # faulthandler's
    assert "_crash" in printed or "_apply" in printed
    assert "was ended by SIGSEGV" in printed


def test_a_coordinator_that_crashes_refers_to_its_stack(
    settings: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        os.kill(pool.stats()["pid"], signal.SIGSEGV)
        with pytest.raises(
            CoordinatorLost, match=r"SIGSEGV .*; its lines on standard error have the stack; make a new pool"
        ):
            pool.stats()
    assert "Segmentation fault" in capfd.readouterr().err


def test_a_call_that_finds_the_coordinator_gone_gets_one_error(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with poolrt.Pool(workers=1, **settings) as pool:
        assert pool.submit(len, "abc").result(BOUND_S) == 3
        coordinator = pool.stats()["pid"]
        os.kill(coordinator, signal.SIGKILL)
        wait_until(lambda: not is_alive(coordinator), "the coordinator is gone")
        with pytest.raises(CoordinatorLost):
            pool.submit(len, "abc").result(BOUND_S)
    assert not caplog.records  # a future that is resolved twice would be logged


def _crash() -> None:
    import faulthandler

    faulthandler._sigsegv()  # type: ignore[attr-defined]


def test_the_signal_of_a_process_is_known_until_its_parent_waits_for_it() -> None:
    pid = os.fork()
    if not pid:
        signal.pause()
        os._exit(0)
    assert signal_of_zombie(pid) == 0
    os.kill(pid, signal.SIGTERM)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert signal_of_zombie(pid) == signal.SIGTERM
    os.waitpid(pid, 0)
    assert signal_of_zombie(pid) == 0


def test_a_core_file_is_named_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda limit: (0, 0))
    assert describe_signal(signal.SIGBUS, 7) == "SIGBUS (memory that does not exist)"
    monkeypatch.setattr("resource.getrlimit", lambda limit: (1 << 30, 1 << 30))
    pattern = Path("/proc/sys/kernel/core_pattern").read_text(encoding="utf-8").strip()
    named = (
        "its core was passed to" if pattern.startswith("|") else f"core file {Path.cwd() if pattern[0] != '/' else ''}"
    )
    assert named in describe_signal(signal.SIGBUS, 7)
    assert describe_signal(signal.SIGKILL, 7) == "SIGKILL"
    assert describe_signal(0, 7) == ""
