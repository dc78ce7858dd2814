"""Fixtures of the bytes floor's tests: servers, homes and stores that leave nothing behind."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CacheStore, StoreUnavailable
from poolrt.cachestore.redis.embedded import EmbeddedServer
from poolrt.cachestore.redis.server_binary import find_server

from .actors import Actors
from .secure_server import SecureServer
from .server import RedisServer
from .server_programs import other_program, valkey_program

StoreMaker = Callable[..., CacheStore]

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server_program() -> str:
    """Return a redis-server, which the test requirements bring along."""
    try:
        return find_server(None)
    except StoreUnavailable as error:
        pytest.fail(f"the tests need a redis-server: {error}")


@pytest.fixture(scope="session")
def redis_server(server_program: str) -> Iterator[RedisServer]:
    """Return a server that all tests share, each in a namespace of its own."""
    folder = Path(tempfile.mkdtemp(prefix="poolrt-test-"))
    server = RedisServer(folder)
    yield server
    server.kill()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def other_server(server_program: str) -> Iterator[RedisServer]:
    """Return a server of another version than the default one."""
    with tempfile.TemporaryDirectory(prefix="poolrt-test-") as name:
        folder = Path(name)
        server = RedisServer(folder / "server", program=other_program(folder))
        yield server
        server.kill()


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[RedisServer]:
    """Return a server of Valkey."""
    with tempfile.TemporaryDirectory(prefix="poolrt-test-") as name:
        server = RedisServer(Path(name) / "server", program=valkey_program())
        yield server
        server.kill()


@pytest.fixture(scope="session")
def secure_server(server_program: str) -> Iterator[SecureServer]:
    """Return a server behind TLS that all tests share, each as a user with the rights for one namespace."""
    with tempfile.TemporaryDirectory(prefix="poolrt-test-") as name:
        server = SecureServer(Path(name) / "server")
        yield server
        server.kill()


@pytest.fixture
def own_server(server_program: str) -> Iterator[RedisServer]:
    """Return a server that a test may harm."""
    folder = Path(tempfile.mkdtemp(prefix="poolrt-test-"))
    server = RedisServer(folder)
    yield server
    server.kill()
    shutil.rmtree(folder)


@pytest.fixture
def namespace() -> str:
    """Return a name that no other test has."""
    return f"test-{next(_numbers)}"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Return a home folder; an embedded server that was started in it is stopped."""
    folder = tmp_path / "home"
    yield folder
    EmbeddedServer(str(folder / "redis")).down()


@pytest.fixture
def options(redis_server: RedisServer, namespace: str, home: Path) -> dict[str, Any]:
    """Return options for stores that share a home and a server."""
    return {"url": redis_server.url, "namespace": namespace, "home": str(home)}


@pytest.fixture
def make_store(options: dict[str, Any]) -> Iterator[StoreMaker]:
    """Return a maker of stores; options given to it come first."""
    made: list[CacheStore] = []

    def make(**more: Any) -> CacheStore:
        made.append(CacheStore.connect(**{**options, **more}))
        return made[-1]

    yield make
    for store in made:
        store.close()


@pytest.fixture
def actors(tmp_path: Path) -> Iterator[Actors]:
    """Return a actors of actors."""
    with Actors(tmp_path / "creations.log") as members:
        yield members
