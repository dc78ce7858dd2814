"""Fixtures: what native pools are made of."""

from __future__ import annotations

import pytest

from .kinds import Loop, region_loop


@pytest.fixture(scope="session")
def loop() -> Loop:
    """Return the kernels of native pools, compiled once a session."""
    return region_loop()
