"""Fixtures: implementations made of other primitives are tested on every kind of engine."""

from __future__ import annotations

from typing import cast

import pytest

from tests.workers.primitives.reference.drawing import Runner


@pytest.fixture(params=["native", "opencl"])
def runner(request: pytest.FixtureRequest) -> Runner:
    """Return what runs primitives on the CPU, and on OpenCL."""
    return cast("Runner", request.getfixturevalue(str(request.param)))
