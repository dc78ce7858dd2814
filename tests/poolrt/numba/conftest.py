"""Stores of the tests' own for functions of Numba, and modules that change between two imports."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from poolrt.numba.process_store import process_store

#: Writes modules, given by name, and returns the freshly imported one of the first name.
Importer = Callable[..., ModuleType]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the home of the process's store, which has no Redis."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("POOLRT_HOME", str(folder))
    monkeypatch.setenv("POOLRT_REDIS_URL", f"unix://{folder}/none.sock")
    process_store.cache_clear()
    yield folder
    process_store().close()
    process_store.cache_clear()


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Importer:
    """Return a function that imports modules anew, as another process would."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def importer(**texts: str) -> ModuleType:
        for name, text in texts.items():
            (folder / f"{name}.py").write_text(text)
            os.utime(folder / f"{name}.py")
        importlib.invalidate_caches()
        for name in texts:
            monkeypatch.delitem(sys.modules, name, raising=False)
        modules = [importlib.import_module(name) for name in texts]
        return modules[0]

    return importer
