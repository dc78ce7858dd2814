"""Functions that wait for a module: called once when it is imported, also if they are given twice."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from poolrt.import_hook import when_imported


def test_a_function_that_is_given_twice_waits_once_and_is_called_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a_module_that_functions_wait_for"
    (tmp_path / f"{name}.py").write_text("value = 5")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", finders := list(sys.meta_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    found: list[tuple[str, int]] = []

    def first(module: ModuleType) -> None:
        found.append(("first", module.value))

    def second(module: ModuleType) -> None:
        found.append(("second", module.value))

    before = len(finders)
    for act in (first, second, first, second):
        when_imported(name, act)
    assert len(finders) == before + 2
    import_module(name)
    assert sorted(found) == [("first", 5), ("second", 5)]
    assert len(finders) == before
    when_imported(name, first)
    assert found[2:] == [("first", 5)]
