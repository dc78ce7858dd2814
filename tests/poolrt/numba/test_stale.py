"""Functions whose callees or constants changed elsewhere: compiled again, and everything else is not."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from poolrt.cachestore import Key
from poolrt.numba import not_shared, stats
from poolrt.numba.fingerprint import Fingerprint, NotShareable, uses
from tests.workers.own_process import python

from .conftest import Importer

#: Case -> the module with the function, the one that changes, and the texts that change in it, before and after.
CHANGES: dict[str, tuple[str, str, str, str]] = {
    "a callee in another module": (
        "import poolrt\nfrom stale_other import inner\n@poolrt.njit\ndef f(x):\n    return inner(x)\n",
        "import poolrt\n@poolrt.njit\ndef inner(x):\n    return x + {}\n",
        "1",
        "1000",
    ),
    "a callee of a callee, in a module's attribute": (
        "import poolrt, stale_other\n@poolrt.njit\ndef f(x):\n    return stale_other.outer(x)\n",
        "import poolrt\n@poolrt.njit\ndef inner(x):\n    return x + {}\n@poolrt.njit\ndef outer(x):\n    return inner(x)\n",
        "2",
        "2000",
    ),
    "an imported constant": (
        "import poolrt\nfrom stale_other import K\n@poolrt.njit\ndef f(x):\n    return x + K\n",
        "K = {}\n",
        "3",
        "3000",
    ),
    "a constant of a module under another name": (
        "import poolrt, stale_other\n@poolrt.njit\ndef f(x):\n    other = stale_other\n    return x + other.K\n",
        "K = {}\n",
        "4",
        "4000",
    ),
    "an element of a constant array": (
        "import poolrt\nfrom stale_other import K\n@poolrt.njit\ndef f(x):\n    return x + K[1]\n",
        "import numpy\nK = numpy.array([1, {}])\n",
        "5",
        "5000",
    ),
    "a member of an enumeration": (
        "import poolrt\nfrom stale_other import K\n@poolrt.njit\ndef f(x):\n    return x + K.A.value\n",
        "import enum\nclass K(enum.IntEnum):\n    A = {}\n",
        "6",
        "6000",
    ),
    "a closure over a compiled function": (
        "import poolrt\nfrom stale_other import inner\ndef make(g):\n    @poolrt.njit\n    def h(x):\n        return g(x)\n"
        "    return h\nf = make(inner)\n",
        "import poolrt\n@poolrt.njit\ndef inner(x):\n    return x + {}\n",
        "7",
        "7000",
    ),
    "an overload of a Python function": (
        "import poolrt\nfrom stale_other import plain\n@poolrt.njit\ndef f(x):\n    return plain(x)\n",
        "from numba.extending import overload\ndef plain(x):\n    return 0\n@overload(plain)\ndef _plain(x):\n"
        "    return lambda x: x + {}\n",
        "8",
        "8000",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_in_another_module_compiles_again(home: Path, imported: Importer, case: str) -> None:
    user, other, before, after = CHANGES[case]
    # Given a function that was compiled, and is a hit for a process with equal sources
    first = imported(stale_other=other.format(before), stale_user=user)
    assert sys.modules["stale_user"].f(0) == int(before)
    created, hits = stats()["created"], stats()["hits"]
    imported(stale_other=other.format(before), stale_user=user)
    assert sys.modules["stale_user"].f(0) == int(before)
    assert (stats()["created"], stats()["hits"] - hits) == (created, 1), not_shared()
    # When the other module changes, then the function is compiled again
    assert first is not imported(stale_other=other.format(after), stale_user=user)
    assert sys.modules["stale_user"].f(0) == int(after)


def test_a_comment_or_an_unused_constant_compiles_nothing(home: Path, imported: Importer) -> None:
    text = "import poolrt\nK = 1\n@poolrt.njit\ndef f(x):\n    return x * K\n"
    assert imported(stale_user=text).f(3) == 3
    created = stats()["created"]
    changed = text.replace("K = 1", "# a comment\nUNUSED = 2\nK = 1")
    assert imported(stale_user=changed).f(3) == 3
    assert stats()["created"] == created


def test_functions_without_a_file_are_found_again(home: Path) -> None:
    text = "def f(x):\n    return x - 7\n"
    created = stats()["created"]
    for _ in range(2):
        import poolrt

        names: dict[str, Any] = {}  # without __name__, as `exec` of a text often is
        exec(text, names)
        assert poolrt.njit(names["f"])(10) == 3
    assert stats()["created"] - created == 1


def test_functions_that_call_each_other_are_found_again(home: Path, imported: Importer) -> None:
    text = (
        "import poolrt\n@poolrt.njit\ndef even(n):\n    return True if n == 0 else odd(n - 1)\n"
        "@poolrt.njit\ndef odd(n):\n    return False if n == 0 else even(n - 1)\n"
    )
    assert imported(stale_user=text).even(7) is False
    created = stats()["created"]
    assert imported(stale_user=text).even(7) is False
    assert stats()["created"] == created


def test_an_array_of_another_content_or_layout_is_another_constant(home: Path) -> None:
    import poolrt

    def make(table: np.ndarray[Any, Any]) -> Any:
        def f(i: int) -> Any:
            return table[0, i]

        return poolrt.njit(f)

    table = np.arange(6.0).reshape(2, 3)
    assert make(table)(1) == 1.0
    assert make(np.asfortranarray(table))(1) == 1.0
    assert make(table + 1)(1) == 2.0


_SEEDS = """
from poolrt.numba.fingerprint import Fingerprint
def f(x):
    return x in {"a", "b", "c", "d"} or x in NAMES
NAMES = frozenset(("e", "f", "g", "h"))
from poolrt.cachestore.key import Key
print(Key(Fingerprint(f).own).digest, "numba" in __import__("sys").modules)
"""


def test_a_set_has_one_key_under_all_hash_seeds_and_needs_no_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for seed in "12":
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        found.add(python(_SEEDS).strip())
    assert len(found) == 1
    assert found.pop().endswith("False")


def test_what_has_an_identity_in_one_process_only_is_not_shared(home: Path) -> None:
    import ctypes

    import poolrt

    class Names:
        f = staticmethod(ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: x + 1))

    call = Names.f

    def f(x: float) -> Any:
        return call(x)

    unshared = stats()["unshared"]
    assert poolrt.njit(f)(1.0) == 2.0
    assert stats()["unshared"] == unshared + 1


#: Case -> the text of a function and of the other module, whose number changes, and the name of that module.
KEYS: dict[str, tuple[str, str, str]] = {
    "a constant by its name": ("def f():\n    return getattr(other, 'K')\n", "K = {}\n", "stale_other"),
    "a constant by a constant name": ("N = 'K'\ndef f():\n    return getattr(other, N)\n", "K = {}\n", "stale_other"),
    "a module that is an argument": (
        "def g(m):\n    return m.K\ndef f():\n    return g(other)\n",
        "K = {}\n",
        "stale_other",
    ),
    "a module with the name of a standard one": (
        "def f():\n    return other.g()\n",
        "def g():\n    return {}\n",
        "wave",
    ),
}


@pytest.mark.parametrize("case", KEYS)
def test_a_change_in_another_module_changes_the_key(imported: Importer, case: str) -> None:
    text, other, name = KEYS[case]
    keys = []
    for number in ("1", "1", "2"):
        imported(**{name: other.replace("{}", number), "stale_user": f"import {name} as other\n{text}"})
        fingerprint = Fingerprint(sys.modules["stale_user"].f)
        keys.append(Key({**fingerprint.own, "callees": fingerprint.callees}).digest)
    assert keys[0] == keys[1] != keys[2]


def _nothing() -> None:
    """Reach nothing."""


def test_what_runs_while_numba_compiles_has_its_classes_described_and_refuses_what_cannot_be(
    imported: Importer,
) -> None:
    text = "class C:\n    K = {}\n    def m(self):\n        return self.K\ndef f():\n    return C\n"
    keys = set()
    for number in ("1", "2"):
        fingerprint = Fingerprint(FunctionType(_nothing.__code__, {}))
        fingerprint.add_running(imported(stale_user=text.replace("{}", number)).f)
        fingerprint.describe_waiting()
        keys.add(Key({"callees": fingerprint.callees}).digest)
    assert len(keys) == 2
    for body in ("import stale_other", "eval('K')", "globals()"):
        fingerprint = Fingerprint(FunctionType(_nothing.__code__, {}))
        fingerprint.add_running(imported(stale_user=f"def f():\n    {body}\n").f)
        with pytest.raises(NotShareable, match="while Numba compiles"):
            fingerprint.describe_waiting()


def test_operators_are_known_by_their_functions() -> None:
    def f(a: Any, b: Any) -> Any:
        a[0] = -b
        a @= b[1]
        return a < b if b in a else a // b

    found = uses(f.__code__).operators
    assert found >= {"setitem", "neg", "imatmul", "matmul", "getitem", "lt", "contains", "floordiv"}
