"""The OpenCL checks: working drivers, and drivers that hang, crash, compute wrongly, cannot link or are absent."""

from __future__ import annotations

import json
import os
import time

import pytest

from poolrt.cli.doctor.finding import Finding, State
from poolrt.cli.doctor.opencl import MARK, findings

ONE_DEVICE = f"print({MARK + json.dumps([[['D', 'P', 'V']], []])!r})"
WORKS = f"print({MARK + '1'!r})"


def _found(list_code: str = ONE_DEVICE, try_code: str = WORKS, limit_s: float = 30) -> list[Finding]:
    return list(findings(limit_s, list_code, try_code))


@pytest.mark.slow  # `poolrt doctor` does the same in another test
def test_the_devices_of_this_machine_are_listed_in_order_and_can_make_and_run_a_kernel() -> None:
    found = list(findings(60))
    assert found
    assert all(finding.state is State.OK for finding in found), found
    assert [finding.name for finding in found] == [f"opencl:{index}" for index in range(len(found))]


def test_a_driver_that_hangs_is_killed_after_the_limit() -> None:
    hang = "import time; time.sleep(600)"
    started = time.monotonic()
    (listing,) = _found(hang, limit_s=0.3)
    (trying,) = _found(try_code=hang, limit_s=1)
    assert time.monotonic() - started < 20
    assert (listing.name, listing.state, listing.seen) == ("opencl", State.WARN, "no answer in 0.3 s: a driver hangs")
    assert (trying.name, trying.state, trying.seen) == ("opencl:0", State.WARN, "D: no answer in 1 s: a driver hangs")


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "a driver crashed the test process (SIGSEGV)"),
        (
            "import os, sys; print('error: no such thing', file=sys.stderr, flush=True); os.abort()",
            "a driver crashed the test process (SIGABRT): error: no such thing",
        ),
        ("raise SystemExit(3)", "the test process exited with status 3"),
        ("import no_such_opencl", "ModuleNotFoundError: No module named 'no_such_opencl'"),
    ],
)
def test_a_driver_that_fails_is_a_finding_and_no_error_of_the_command(code: str, seen: str) -> None:
    (listing,) = _found(code)
    (trying,) = _found(try_code=code)
    assert (listing.state, listing.seen) == (State.WARN, seen)
    assert (trying.state, trying.seen) == (State.WARN, f"D: {seen}")
    assert "engine cpu is not affected" in listing.advice


def test_no_device_is_a_warning_with_advice() -> None:
    (finding,) = _found(f"print({MARK + '[[], []]'!r})")
    assert finding.state is State.WARN
    assert "pyopencl[pocl]" in finding.advice


def test_a_device_that_the_runtime_refuses_is_a_finding_with_its_reason() -> None:
    refused, device = _found(f"print({MARK + json.dumps([[['D', 'P', 'V']], ['old thing: too old']])!r})")
    assert (refused.state, refused.seen) == (State.WARN, "old thing: too old")
    assert device.state is State.OK


def test_a_device_that_computes_wrongly_is_a_warning() -> None:
    (finding,) = _found(try_code=f"print({MARK + '0'!r})")
    assert (finding.state, finding.seen) == (State.WARN, "D: a test kernel returned a wrong result")


def test_the_output_of_a_driver_does_not_hide_the_answer() -> None:
    (finding,) = _found(f"print('hello'); {ONE_DEVICE}; print('bye')")
    assert (finding.name, finding.state, finding.seen) == ("opencl:0", State.OK, "D (P, V)")


def test_without_a_linker_the_advice_names_the_packages() -> None:
    # PoCL's compiler says so on standard error before the process dies.
    said = 'error: unable to execute command: Executable "ld" doesn\'t exist!'
    (finding,) = _found(try_code=f"import os, sys; print({said!r}, file=sys.stderr, flush=True); os.abort()")
    assert finding.state is State.WARN
    assert said in finding.seen
    assert "apt-get install gcc libc6-dev" in finding.advice


def test_the_checks_do_not_change_our_environment() -> None:
    before = dict(os.environ)
    _found(f"import os; os.environ['X'] = '1'; {ONE_DEVICE}")
    assert dict(os.environ) == before
