"""Fixtures of the tests of `poolrt cache`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home folder that every command of the test uses; its server is stopped at the end."""
    for name in os.environ:
        if name.startswith("POOLRT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("POOLRT_HOME", str(tmp_path))
    yield tmp_path
    monkeypatch.undo()
    with CacheStore.connect(home=str(tmp_path)) as store:
        store.down()
