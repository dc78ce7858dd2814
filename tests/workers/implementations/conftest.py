"""Fixtures: primitives computed on the calling thread and, with the same bytes, on threadpools."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.workers.native_runner import NativeRunner
from tests.workers.support.pooled_runner import PooledRunner
from tests.workers.threadpools.every_pool import HELD_BACK, EveryPool
from tests.workers.threadpools.kinds import region_loop


@pytest.fixture(scope="session")
def held_back(native: NativeRunner) -> Iterator[PooledRunner]:
    """Return a runner with the threadpool that runs nothing before a wait."""
    pools = EveryPool(region_loop(), random.SystemRandom().randrange(1 << 32), [HELD_BACK])
    yield PooledRunner(native, pools)
    pools.close()


@pytest.fixture(scope="session")
def every_pool(native: NativeRunner) -> Iterator[PooledRunner]:
    """Return a runner with threadpools of every kind and size."""
    pools = EveryPool(region_loop(), random.SystemRandom().randrange(1 << 32))
    yield PooledRunner(native, pools)
    pools.close()
