"""Fixtures of the primitive cache: its policies, and a store with a memory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers.primitives.policies import CostPrimitiveCache, LruPrimitiveCache

from .fifo import Fifo, Policy


@pytest.fixture(params=[LruPrimitiveCache, CostPrimitiveCache, Fifo], ids=["lru", "cost", "user's fifo"])
def policy(request: pytest.FixtureRequest) -> Policy:
    """Return the class of a cache: each policy passes the same tests."""
    found: Policy = request.param
    return found


@pytest.fixture
def store(store: CacheStore, tmp_path: Path) -> Iterator[CacheStore]:
    """Return a store that is empty: primitives are derived from kernels of its entries."""
    with CacheStore.connect(home=store.options.home, namespace=tmp_path.name) as opened:
        yield opened


@pytest.fixture
def near(store: CacheStore) -> Iterator[CacheStore]:
    """Return a store with the same entries and a memory of its own, whose capacity a test may change."""
    with CacheStore.connect(home=store.options.home, namespace=store.options.namespace) as opened:
        yield opened
