"""The OpenCL question: an answer, and drivers that hang, crash, lie or are absent."""

from __future__ import annotations

import os
import time

import pytest

from poolrt.cli.doctor.finding import State
from poolrt.cli.doctor.opencl import findings


def test_the_devices_of_this_machine_are_listed_in_order() -> None:
    found = list(findings())
    assert found
    assert all(finding.state is State.OK for finding in found), found
    assert [finding.name for finding in found] == [f"opencl:{index}" for index in range(len(found))]


def test_a_driver_that_hangs_is_killed_after_the_limit() -> None:
    started = time.monotonic()
    (finding,) = findings(0.3, "import time; time.sleep(600)")
    assert time.monotonic() - started < 10
    assert finding.state is State.WARN
    assert finding.seen == "no answer in 0.3 s: a driver hangs"


@pytest.mark.parametrize(
    ("question", "seen"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "a driver crashed the asking process (SIGSEGV)"),
        ("import os; os.abort()", "a driver crashed the asking process (SIGABRT)"),
        ("raise SystemExit(3)", "the asking process ended with status 3"),
        ("import no_such_opencl", "ModuleNotFoundError: No module named 'no_such_opencl'"),
        ("print('poolrt-opencl:[]')", "0 platforms, no device"),
        ('print(\'poolrt-opencl:[["P", "1", []]]\')', "1 platforms, no device"),
    ],
)
def test_a_driver_that_fails_is_a_finding_and_not_our_failure(question: str, seen: str) -> None:
    (finding,) = findings(30, question)
    assert finding.state is State.WARN
    assert finding.seen == seen
    assert "engine cpu is not affected" in finding.advice


def test_what_a_driver_prints_does_not_hide_the_answer() -> None:
    question = "print('hello from the driver'); print('poolrt-opencl:[[\"P\", \"V\", [\"D\"]]]'); print('bye')"
    (finding,) = findings(30, question)
    assert (finding.name, finding.state, finding.seen) == ("opencl:0", State.OK, "D (P, V)")


def test_asking_does_not_change_our_environment() -> None:
    before = dict(os.environ)
    list(findings(30, "import os; os.environ['X'] = '1'"))
    assert dict(os.environ) == before
