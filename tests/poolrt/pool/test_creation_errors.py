"""Creation errors, from a compiler that is broken for real, all the way to the program that loads the graph."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import CreationFailed, CreatorLost
from tests.startup.shared_compiler import FOLDER

from .created import create
from .processes import BOUND_S, family, relu_graph

_X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)


@pytest.fixture
def shadow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in front of all others on the path of the pools of this test, which leave no process behind.

    Their creators share no kernels with other tests.
    """
    monkeypatch.delenv(FOLDER, raising=False)
    before = set(family())
    folder = tmp_path / "shadow"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    assert set(family()) - before == set()


def _break(shadow: Path, package: str, code: str) -> None:
    """Put a package that runs ``code`` before the real one, of the same version, so that keys stay what they are."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    (shadow / package).mkdir()
    (shadow / package / "__init__.py").write_text(f"{code}\n", encoding="utf-8")
    for metadata in Path(spec.origin).parents[1].glob(f"{package}-*.dist-info"):
        (shadow / metadata.name).symlink_to(metadata)


def _repair(shadow: Path) -> None:
    for path in shadow.iterdir():
        path.unlink() if path.is_symlink() else shutil.rmtree(path)


def test_a_compiler_that_is_broken_is_an_error_with_its_type_message_log_and_the_primitive(
    settings: dict[str, Any], tmp_path: Path, shadow: Path
) -> None:
    private = {**settings, "home": str(tmp_path / "home")}
    # Given a graph that was created while the compiler was in order
    create(private["home"], relu_graph())
    # When the compiler is broken
    _break(shadow, "llvmlite", "raise RuntimeError('this installation is broken')")
    other = relu_graph((5, 7), name="other", step="abs")
    with poolrt.Pool(workers=1, threads=1, **private) as pool:
        # Then loading a graph without entries raises the reason
        with pytest.raises(CreationFailed) as caught:
            pool.load(other)
        error = caught.value
        assert error.type == "RuntimeError"
        assert "this installation is broken" in error.message
        assert error.message.startswith("eltwise (native:eltwise): ")
        assert "llvmlite/__init__.py" in error.log
        assert "Traceback" in error.log
        # And the next load tries again, with the same outcome
        with pytest.raises(CreationFailed, match="this installation is broken"):
            pool.load(other)
        # And what has been created before still loads and runs
        model = pool.load(relu_graph())
        assert model.report["primitives"] == {
            "total": 1,
            "created": 0,
            "waited": 0,
            "derived": 0,
            "memory": 0,
            "files": 1,
            "prebuilt": 0,
            "redis": 0,
        }
        np.testing.assert_array_equal(model.run(x=_X)["y"], np.maximum(_X, 0))
        assert pool.stats()["workers_lost"] == 0
        # And when the compiler is in order again, the same pool creates
        _repair(shadow)
        x = np.ones((5, 7), np.float32)
        model = pool.load(other)
        assert model.report["primitives"]["created"] == 1
        assert model.run(x=x)["y"].sum() == 35
        assert pool.stats()["cache"]["creation_errors"] == 2


def test_two_loads_that_wait_for_the_same_creation_get_the_same_error(
    settings: dict[str, Any], tmp_path: Path, shadow: Path
) -> None:
    _break(shadow, "llvmlite", "raise RuntimeError('broken for all')")
    with poolrt.Pool(workers=1, threads=1, **{**settings, "home": str(tmp_path / "home")}) as pool:
        with ThreadPoolExecutor(3) as threads:
            loads = [threads.submit(pool.load, relu_graph(name=name)) for name in "abc"]
            errors = [load.exception(BOUND_S) for load in loads]
        assert all(isinstance(error, CreationFailed) for error in errors)
        assert len({str(error) for error in errors}) == 1


def test_a_compiler_that_ends_its_process_is_an_error_and_not_a_hang(
    settings: dict[str, Any], tmp_path: Path, shadow: Path
) -> None:
    _break(shadow, "llvmlite", "import os; os._exit(3)")
    with poolrt.Pool(workers=1, threads=1, **{**settings, "home": str(tmp_path / "home")}) as pool:
        with pytest.raises(CreatorLost, match=r"eltwise.*exited while they started"):
            pool.load(relu_graph())
        _repair(shadow)
        assert pool.load(relu_graph()).run(x=_X)["y"].shape == (4, 8)
