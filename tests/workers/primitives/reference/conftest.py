"""Fixtures: each test of reference implementations runs on every kind of engine."""

from __future__ import annotations

from typing import cast

import pytest

from .drawing import Runner


@pytest.fixture(params=["native", "opencl"])
def runner(request: pytest.FixtureRequest) -> Runner:
    """Return what runs primitives on the CPU, and on OpenCL."""
    return cast("Runner", request.getfixturevalue(str(request.param)))
