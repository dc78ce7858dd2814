"""Fixtures of the compute floor's tests."""

from __future__ import annotations

import pytest

from poolrt.workers.engines.target import ISA_LEVELS, host_isa

from .native_runner import LEVELS, NativeRunner


@pytest.fixture(scope="session")
def native() -> NativeRunner:
    """Return a runner that compiles each native kernel once a session."""
    return NativeRunner()


@pytest.fixture(params=LEVELS)
def isa(request: pytest.FixtureRequest) -> str:
    """Return each ISA level whose code this host can run."""
    level = str(request.param)
    order = list(ISA_LEVELS)
    if order.index(level) > order.index(host_isa()):
        pytest.skip(f"this host has only {host_isa()}")
    return level
