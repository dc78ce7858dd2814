"""Fixtures: what is supported is verified on every kind of engine."""

from __future__ import annotations

import pytest

from .verification import Verification


@pytest.fixture(scope="session", params=["native", "opencl"])
def verification(request: pytest.FixtureRequest) -> Verification:
    """Return what verifies cells on each kind of engine."""
    return Verification(request.getfixturevalue(str(request.param)))
