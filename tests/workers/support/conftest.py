"""Fixtures: what is supported is verified on every kind of engine, on a CPU on threadpools of every kind."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.workers.threadpools.every_pool import EveryPool
from tests.workers.threadpools.kinds import region_loop

from .pooled_runner import PooledRunner
from .verification import Verification


@pytest.fixture(scope="session", params=["native", "opencl"])
def verification(request: pytest.FixtureRequest) -> Iterator[Verification]:
    """Return what verifies cells on each kind of engine."""
    seed = random.SystemRandom().randrange(1 << 32)
    runner = request.getfixturevalue(str(request.param))
    if request.param == "opencl":
        yield Verification(runner, seed)
        return
    pools = EveryPool(region_loop(), seed)
    yield Verification(PooledRunner(runner, pools), seed)
    pools.close()
