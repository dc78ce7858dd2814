"""`poolrt cache explain` of users' functions: the callee, constant or option that changed, in the words of their sources."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType
from typing import Any, Final

import pytest

import poolrt
from poolrt.cachestore import CacheStore, Key
from poolrt.cli import main
from poolrt.cli.cache.reasons import reasons

#: A module whose kernel reaches a constant and a table by two other functions.
_TEXT: Final = """
import numpy as np
K = 1
TABLE = np.array([1.0, 2.0])
NAMES = ("a", "b")

def deep(x):
    return x * K + TABLE[0]

def helper(x):
    return deep(x) + len(NAMES)

def other(x):
    return x

def scale(x, y=1):
    x[0] = helper(x[0]) + K
"""


def _module(old: str = "", new: str = "") -> dict[str, Any]:
    assert old in _TEXT
    names: dict[str, Any] = {"__name__": "service"}
    exec(_TEXT.replace(old, new) if old else _TEXT, names)
    return names


def _key(names: dict[str, Any], signature: str = "void(f8[::1], i8)", name: str = "scale", **options: bool) -> Key:
    function: FunctionType = names[name]
    made: Key = poolrt.kernel(signature, **options)(function).key()
    return made


def _explained(capsys: pytest.CaptureFixture[str], missed: Key, *stored: Key, word: str = "scale") -> str:
    """Store keys, miss another one, and return what is printed, as one line."""
    with CacheStore.connect() as store:
        for key in stored:
            store.get_or_create(key, lambda: b"x")
    with CacheStore.connect() as store:
        store.get(missed)
    capsys.readouterr()
    assert main(["cache", "explain", word]) == 0
    return " | ".join(line.strip() for line in capsys.readouterr().out.splitlines())


_CHANGES: Final[list[tuple[str, str, str]]] = [
    ("return x * K", "return x - K", "callee service.deep: its code"),
    ("x[0] = helper(x[0])", "x[0] = 2 * helper(x[0])", "its own code"),
    ("K = 1", "K = 7", "constant K: 1, here 7 | constant K of callee service.deep: 1, here 7"),
    ("K = 1", "K = 1.0", "constant K: 1, here 1.0 | constant K of callee service.deep: 1, here 1.0"),
    ("[1.0, 2.0]", "[1.0, 3.0]", "constant TABLE of callee service.deep: an array of other content"),
    ("[1.0, 2.0]", "[1.0]", "constant TABLE of callee service.deep: an array of other type, shape or layout"),
    ('("a", "b")', '("a",)', "constant NAMES of callee service.helper: tuple ['a', 'b'], here tuple ['a']"),
    ("y=1", "y=2", "defaults: [1], here [2]"),
    (
        "return deep(x) +",
        "return other(x) +",
        "callee service.deep: no longer reached | callee service.helper: its code | name deep of callee service.helper: no "
        "longer used | name other of callee service.helper: new | callee service.other: new",
    ),
]


def test_the_change_is_named_by_function_and_constant(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for old, new, said in _CHANGES:
        _check_change(capsys, old, new, said)


def _check_change(capsys: pytest.CaptureFixture[str], old: str, new: str, said: str) -> None:
    # Given the function as it was, and one that has nothing to do with it
    before, unrelated = _key(_module()), _key(_module(), "void(f8)", "other")
    shown = _explained(capsys, _key(_module(old, new)), before, unrelated)
    assert " kernel service.scale(float64[::1], int64), missed 0 s ago, not stored now | " in shown
    assert f"; nearest {before.digest[:16]} (" in shown
    assert shown.replace("differs in | ", "differs in ").endswith(f"differs in {said}")


def test_an_option_a_signature_a_processor_and_a_new_function_are_named(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _key(_module())
    assert _explained(capsys, _key(_module(), fastmath=True), before).endswith(
        "differs in options.fastmath: absent, here True"
    )
    assert _explained(capsys, _key(_module(), "void(f4[::1], i8)"), before).endswith(
        "differs in signature: void(float64[::1], int64), here void(float32[::1], int64)"
    )
    elsewhere = Key({**before.fields, "target": {**before.fields["target"], "level": "x86-64-v9"}})
    assert "target.level: absent, here x86-64-v9" in _explained(capsys, elsewhere, before)


def test_a_function_is_compared_with_entries_of_its_own_name_only(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given an entry of another function that differs in less than the entry of this one
    names = _module()
    twin = Key({**_key(names).fields, "function": "service.twin"})
    changed = _key(_module("return x * K + TABLE[0]", "return K"))
    assert f"nearest {changed.digest[:16]}" in _explained(capsys, _key(names), twin, changed)
    # And without one of this function there is no reason but that it is new
    shown = _explained(capsys, _key(names, "void(f8)", "other"), word="other")
    assert shown.endswith("| no near entry: there was none of function service.other")
    # An unknown one is refused with the nearest name
    for word, said in (("service.scal", "; the nearest is 'service.scale'"), ("zzz", "the name of a function")):
        assert main(["cache", "explain", word]) == 2
        shown = capsys.readouterr().err
        assert shown.startswith(f"poolrt: {word}: expected 4 or more digits of a digest")
        assert said in shown
        assert shown.count("\n") == 1


def test_an_option_of_numba_is_named_once_and_sources_of_programs_in_words() -> None:
    here = {
        "kind": "numba",
        "options": {"fastmath": True},
        "flags": {"fastmath": "a"},
        "signature": "(f8)",
        "types": [1],
    }
    there = {
        "kind": "numba",
        "options": {"fastmath": False},
        "flags": {"fastmath": "b"},
        "signature": "(i8)",
        "types": [2],
    }
    assert reasons(here, there, Key(here).diff(Key(there))) == [
        "options.fastmath: False, here True",
        "signature: (i8), here (f8)",
    ]
    here = {"kind": "opencl", "source": "1", "includes": {"a.h in 77": (("1",),), "b.h": (("1",),)}}
    there = {"kind": "opencl", "source": "2", "includes": {"a.h in 77": (("2",),), "b.h": (("2",),)}}
    assert set(reasons(here, there, Key(here).diff(Key(there)))) == {
        *("its source", "the included file a.h", "the included file b.h")
    }
