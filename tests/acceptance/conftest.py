"""Surroundings that tests share or have to themselves, and networks that are made once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .networks import Network, make_network
from .surroundings import Surroundings

NetworkMaker = Callable[[str], Network]


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> NetworkMaker:
    """Return a network by name, with weights of these tests' own; each is made once."""
    folder = tmp_path_factory.mktemp("networks")
    return functools.lru_cache(maxsize=None)(lambda name: make_network(name, folder))


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    """Surroundings that many tests share, so that each kernel is created once."""
    surroundings = Surroundings(tmp_path_factory.mktemp("shared"))
    yield surroundings
    surroundings.close()


@pytest.fixture
def warm(shared: Surroundings) -> Iterator[Surroundings]:
    """The shared surroundings; the test leaves nothing there but entries in the cache."""
    yield shared
    shared.assert_nothing_is_left()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Surroundings]:
    """Surroundings of the test's own, where nothing is cached yet."""
    surroundings = Surroundings(tmp_path / "fresh")
    yield surroundings
    surroundings.close()
