"""Pools for tests: their own cache folder and no Redis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import poolrt

from .created import create
from .processes import relu_graph


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings of a pool that shares its files with the other tests and finds no Redis, so that none is started.

    The primitive of `relu_graph` is in the files.
    """
    home = tmp_path_factory.mktemp("home")
    create(home, relu_graph())
    return {"home": str(home), "redis_url": f"unix://{home}/none.sock", "arena_bytes": 64 * 1024 * 1024}


@pytest.fixture(scope="module")
def pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    """A pool of two workers for tests that leave it as it was."""
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        yield pool
