"""Fixtures: a creating and a running process for the whole session, where there is an OpenCL device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .processes import Server, python


@pytest.fixture(scope="session")
def device() -> str:
    """Return the name of the first OpenCL device; without one the test is skipped at home and fails in CI."""
    code = "from poolrt.workers.engines.opencl import *; print(dict(opencl_target().device)['name'] if count() else '')"
    name = python(code).strip()
    if not name and "CI" not in os.environ:
        pytest.skip("there is no OpenCL device")
    assert name, "CI must have an OpenCL device: pyopencl[pocl] brings one"
    return name


@pytest.fixture(scope="session")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder through which entries and results go."""
    return tmp_path_factory.mktemp("opencl")


@pytest.fixture(scope="session")
def creating(device: str, entries: Path) -> Iterator[Server]:
    server = Server("tests.workers.opencl.creating", str(entries))
    yield server
    server.close()


@pytest.fixture(scope="session")
def running(device: str, entries: Path) -> Iterator[Server]:
    server = Server("tests.workers.opencl.running", str(entries))
    yield server
    server.close()
