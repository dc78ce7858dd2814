"""Fixtures: each test of reference implementations runs on every kind of engine."""

from __future__ import annotations

from typing import cast

import pytest

from .drawing import Runner


@pytest.fixture(params=["held_back", "opencl", pytest.param("every_pool", marks=pytest.mark.slow)])
def runner(request: pytest.FixtureRequest) -> Runner:
    """Return what runs primitives on the CPU, also on threadpools, and on OpenCL."""
    return cast("Runner", request.getfixturevalue(str(request.param)))
