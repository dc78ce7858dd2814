"""Functions whose callees or constants changed elsewhere: compiled again, and everything else is not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrt.numba import not_shared, stats
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
