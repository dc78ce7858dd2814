"""Fixtures: a primitive cache for all graphs of these tests, so that each kernel is compiled once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.workers.compiled import creator


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CacheStore]:
    with CacheStore.connect(home=str(tmp_path_factory.mktemp("home"))) as opened:
        yield opened
        opened.down()


@pytest.fixture(scope="session")
def cache(store: CacheStore) -> PrimitiveProvider:
    return PrimitiveProvider(256, store, creator().create)
