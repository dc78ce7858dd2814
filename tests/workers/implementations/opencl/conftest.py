"""Fixtures: a creating and a running process for the whole session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ...own_process import Server


@pytest.fixture(scope="session")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder through which entries and results go."""
    return tmp_path_factory.mktemp("opencl")


@pytest.fixture(scope="session")
def creating(device: str, entries: Path) -> Iterator[Server]:
    server = Server("tests.workers.implementations.opencl.creating", str(entries))
    yield server
    server.close()


@pytest.fixture(scope="session")
def running(device: str, entries: Path) -> Iterator[Server]:
    server = Server("tests.workers.implementations.opencl.running", str(entries))
    yield server
    server.close()
