"""Dask clusters of the tests' own, whose workers have homes of their own and one Redis."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import pytest
from distributed import Client, LocalCluster

import poolrt
from poolrt.numba.process_store import process_store
from poolrt.workers.primitives.provider import primitive_provider
from tests.cachestore.server import RedisServer


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Return a folder with a short name, for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="dask-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def redis_url(place: Path) -> Iterator[str]:
    """Return the URL of a server that the workers of a cluster share."""
    server = RedisServer(place / "redis")
    yield server.url
    server.kill()


@pytest.fixture(scope="module")
def key_file(place: Path) -> Path:
    """Return a signing key file."""
    path = place / "key"
    path.touch(0o600)
    path.write_text(secrets.token_hex(32))
    return path


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the home of a process that has not used the cache yet; afterwards it has not either."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    for name in ("HOME", "REDIS_URL", "NAMESPACE", "KEY_FILE", "READ_ONLY"):
        monkeypatch.setenv(f"POOLRT_{name}", "")
    for cached in (process_store, primitive_provider):
        cached.cache_clear()
    yield home
    for cached in (process_store, primitive_provider):
        if cached.cache_info().currsize:
            store = cached() if cached is process_store else primitive_provider().store
            store.close()  # type: ignore[union-attr]
        cached.cache_clear()


@contextmanager
def cluster(workers: int, folder: Path, **options: Any) -> Iterator[Any]:
    """Yield the client of a cluster on this machine, which listens on loopback only."""
    with dask.config.set({"temporary-directory": str(folder)}):
        made = LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=workers,
            threads_per_worker=1,
            # Without addresses, Dask's HTTP servers would listen on all interfaces.
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            **options,
        )
        with made, Client(made) as client:  # type: ignore[no-untyped-call]
            yield client


def network(name: str = "net") -> poolrt.Graph:
    """Return a graph of three primitives on an input of 4 x 8."""
    rng = np.random.default_rng(0)
    g = poolrt.Graph(name)
    x = g.input("x", (4, 8))
    h = g.eltwise(g.matmul(x, rng.normal(size=(8, 16)).astype("f4")), "relu")
    g.output("h", h)
    g.output("y", g.softmax(g.matmul(h, rng.normal(size=(16, 3)).astype("f4")), axis=-1))
    return g


def small() -> poolrt.Graph:
    """Return a graph of one primitive on an input of 4 x 8, which compiles soon."""
    g = poolrt.Graph("small")
    y = g.eltwise(g.input("x", (4, 8)), "relu")
    g.output("h", y)
    g.output("y", y)
    return g


def batches(count: int) -> list[dict[str, Any]]:
    """Return inputs of the network, each another one."""
    return [{"x": np.random.default_rng(seed).normal(size=(4, 8)).astype("f4")} for seed in range(count)]


def expected(batch: dict[str, Any]) -> Any:
    """Return the network's output for a batch, computed by NumPy."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(8, 16)).astype("f4"), rng.normal(size=(16, 3)).astype("f4")
    z = np.exp(np.maximum(batch["x"] @ first, 0) @ second)
    return z / z.sum(-1, keepdims=True)
