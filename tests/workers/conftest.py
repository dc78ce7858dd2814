"""Fixtures of the compute floor's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers.engines.target import ISA_LEVELS, host_isa

from .native_runner import LEVELS, NativeRunner
from .opencl.reference.runner import OpenClRunner


@pytest.fixture(scope="session")
def native() -> NativeRunner:
    """Return a runner that compiles each native kernel once a session."""
    return NativeRunner()


@pytest.fixture(params=LEVELS)
def isa(request: pytest.FixtureRequest) -> str:
    """Return each ISA level whose code this host can run."""
    level = str(request.param)
    order = list(ISA_LEVELS)
    if order.index(level) > order.index(host_isa()):
        pytest.skip(f"this host has only {host_isa()}")
    return level


@pytest.fixture(scope="session")
def opencl(device: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenClRunner]:
    """Return a runner that compiles each OpenCL kernel once a session."""
    runner = OpenClRunner(tmp_path_factory.mktemp("opencl"))
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CacheStore]:
    """Return a store of its own for the session, so that each primitive is compiled once."""
    with CacheStore.connect(home=str(tmp_path_factory.mktemp("home"))) as opened:
        yield opened
        opened.down()
