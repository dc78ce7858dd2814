"""Functions whose callees or constants changed elsewhere: compiled again, and everything else is not."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import numpy as np
import pytest

from poolrt.cachestore import Key
from poolrt.numba import not_shared, stats
from poolrt.numba.bytecode import uses
from poolrt.numba.fingerprint import Fingerprint, NotShareable
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
    "the signature that a callee is declared with": (
        "import poolrt\nfrom stale_other import inner\n@poolrt.njit\ndef f(x):\n    return inner(x + 0.5) * 2\n",
        "import poolrt\n@poolrt.njit('{}')\ndef inner(x):\n    return x\n",
        "int64(int64)",
        "float64(float64)",
    ),
    "an option of a callee that is compiled twice": (
        "import poolrt\nfrom stale_other import plain, checked\n@poolrt.njit\ndef f(x):\n"
        "    return plain(x) + checked(x)\n",
        "import poolrt\ndef inner(x):\n    return 1\n"
        "plain, checked = poolrt.njit(inner), poolrt.njit(error_model='{}')(inner)\n",
        "python",
        "numpy",
    ),
    "the identity of a ufunc": (
        "import poolrt\nfrom stale_other import add\n@poolrt.njit\ndef f(x):\n    return x + add.identity\n",
        "import poolrt\n@poolrt.vectorize(identity={})\ndef add(x, y):\n    return x + y\n",
        "0",
        "1",
    ),
}
#: Case -> the results before and after, if they are not the texts.
RESULTS: Final = {
    "the signature that a callee is declared with": (0, 1),
    "an option of a callee that is compiled twice": (2, 2),
}
#: Case -> the overloads that come from the store, if not one: what has signatures is loaded when its module is imported.
LOADED: Final = {"the signature that a callee is declared with": 2}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (number % 3 > 0)) for number, case in enumerate(CHANGES)]
)
@pytest.mark.one_in(2)
def test_a_change_in_another_module_compiles_again(home: Path, imported: Importer, case: str) -> None:
    user, other, before, after = CHANGES[case]
    old, new = RESULTS.get(case) or (int(before), int(after))
    # Given a function that was compiled, and is a hit for a process with equal sources
    first = imported(stale_other=other.format(before), stale_user=user)
    assert sys.modules["stale_user"].f(0) == old
    created, hits = stats()["created"], stats()["hits"]
    imported(stale_other=other.format(before), stale_user=user)
    assert sys.modules["stale_user"].f(0) == old
    assert (stats()["created"], stats()["hits"] - hits) == (created, LOADED.get(case, 1)), not_shared()
    # When the other module changes, then the function is compiled again
    assert first is not imported(stale_other=other.format(after), stale_user=user)
    created = stats()["created"]
    assert sys.modules["stale_user"].f(0) == new
    assert stats()["created"] > created


_OPERATOR = """
import operator, sys
import poolrt, poolrt.numba
from numba import types
from numba.extending import overload

@overload(operator.sub)
def minus(x, y):
    if isinstance(x, types.UnicodeType) and isinstance(y, types.Integer):
        return lambda x, y: y + {}

@poolrt.njit
def f(x):
    return "a" - x

print(f(1), poolrt.numba.stats()["created"])
"""


@pytest.mark.slow
def test_an_operator_that_others_gave_to_numba_is_part_of_the_key(home: Path) -> None:
    assert python(_OPERATOR.format(1)).split() == ["2", "1"]
    assert python(_OPERATOR.format(1)).split() == ["2", "0"]
    assert python(_OPERATOR.format(9)).split() == ["10", "1"]


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


def test_a_function_that_calls_back_a_loaded_one_is_compiled_with_it(home: Path, imported: Importer) -> None:
    text = (
        "import poolrt\n@poolrt.njit\ndef foo(x):\n    return x + bar(x - 1) if x > 0 else 1\n"
        "@poolrt.njit\ndef bar(x):\n    return x * foo(x - 2) if x > 0 else 1\n"
    )
    expected = imported(stale_user=text).foo(9), sys.modules["stale_user"].bar(9)
    for _ in range(2):
        module = imported(stale_user=text)
        assert (module.foo(9), module.bar(9)) == expected


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


def test_a_function_stays_itself_if_numba_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core import config

    import poolrt

    def f(x: int, y: int) -> int:
        return x + y

    monkeypatch.setattr(config, "DISABLE_JIT", 1)
    assert poolrt.njit(f) is f
    assert poolrt.njit(fastmath=True)(f)(1, 2) == 3


@pytest.mark.slow
def test_stencils_are_found_again_until_they_change(home: Path, imported: Importer) -> None:
    text = (
        "import numba, poolrt\nK = {}\n@numba.stencil(cval=0)\ndef add(a):\n    return a[-1] + a[1] + K\n"
        "@poolrt.njit\ndef f(a):\n    return add(a)\n"
    )
    for constant, created in ((1, 1), (1, 0), (2, 1)):
        before = stats()["created"]
        assert imported(stale_user=text.format(constant)).f(np.ones(3)).tolist() == [0, 2 + constant, 0]
        assert stats()["created"] - before == created


def test_functions_with_functions_and_structures_as_arguments_are_found_again(home: Path, imported: Importer) -> None:
    text = (
        "import poolrt\nfrom numba import types\nfrom numba.experimental import structref\n"
        "@structref.register\nclass PairType(types.StructRef):\n    pass\n"
        "class Pair(structref.StructRefProxy):\n    pass\n"
        "structref.define_proxy(Pair, PairType, ['a', 'b'])\n"
        "@poolrt.njit\ndef twice(x):\n    return x * 2\n"
        "@poolrt.njit\ndef apply(g, x):\n    return g(x)\n"
        "@poolrt.njit\ndef total(pair):\n    return pair.a + pair.b\n"
        "@poolrt.njit\ndef make(a, b):\n    return Pair(a, b)\n"
    )
    for number in range(2):
        created = stats()["created"]
        module = imported(stale_user=text)
        assert module.apply(module.twice, 3) == 6
        unshared = stats()["unshared"]
        assert module.total(module.make(1, 2)) == 3
        assert stats()["unshared"] == unshared, not_shared()
        assert (stats()["created"] - created > 0) is (number == 0), not_shared()


def test_the_versions_of_declared_variables_are_not_part_of_a_key(home: Path, imported: Importer) -> None:
    # Numba adds them to the declaration when it compiles, and the second overload is compiled after the first
    text = (
        "import poolrt\nfrom numba import types\n@poolrt.njit(locals={'n': types.int8})\ndef inner(x):\n"
        "    n = x\n    for i in range(3):\n        n = n + i\n    return n\n"
        "@poolrt.njit\ndef f(x):\n    return inner(x) + 1\n"
    )
    for number in range(2):
        created = stats()["created"]
        module = imported(stale_user=text)
        calls = (1, 1.5) if number == 0 else (1.5, 1)
        assert sorted(module.f(x) for x in calls) == [5, 5]
        assert (stats()["created"] - created > 0) is (number == 0)


def test_code_from_the_store_can_be_looked_at(home: Path, imported: Importer) -> None:
    text = "import poolrt\n@poolrt.njit\ndef f(x_of_mine):\n    return x_of_mine + 1\n"
    assert imported(stale_user=text).f(1) == 2
    function = imported(stale_user=text).f
    assert function(1) == 2
    assert sum(function.stats.cache_hits.values()) == 1
    (code,), (assembly,) = function.inspect_llvm().values(), function.inspect_asm().values()
    assert "x_of_mine" in code
    assert ".globl" in assembly or ".weak" in assembly


def test_code_that_calls_python_is_found_again(home: Path, imported: Importer) -> None:
    text = (
        "import poolrt, numba\n@poolrt.njit\ndef f(x):\n    with numba.objmode(y='int64'):\n        y = int(str(x)) + 1\n"
        "    return y\n"
    )
    assert imported(stale_user=text).f(1) == 2
    created = stats()["created"]
    assert imported(stale_user=text).f(1) == 2
    assert stats()["created"] == created, not_shared()


def test_code_without_a_module_finds_its_own_globals(home: Path) -> None:
    import poolrt

    text = "def f(x):\n    with objmode(y='int64'):\n        y = int(table.sum()) + x\n    return y\n"
    created = stats()["created"]
    for table in (np.arange(3), np.arange(3)):
        import numba

        names: dict[str, Any] = {"objmode": numba.objmode, "table": table}
        exec(text, names)
        assert poolrt.njit(names["f"])(1) == 4
    assert stats()["created"] - created == 1
    names = {"count": 5}
    exec("def g(x):\n    return x + count\n", names)
    assert poolrt.njit(names["g"])(1) == 6
