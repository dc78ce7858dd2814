"""Kernels that reach functions and constants through modules, as `import helpers as h` and `h.f(x)`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.cachestore import CreationFailed
from poolrt.kernels.kernel import Kernel
from poolrt.numba.process_store import process_store

#: Modules of a user: `deep.f(x)` is ``2 * (3 * sin(x) + 5)``. None of the functions is one of Numba's.
_MODULES = {
    "poolrt_test_helpers": """
import math

import numpy as np
import poolrt

SHIFT = 5
TABLE = np.array([1.0, 3.0])

def f(x):
    return inner(x) + SHIFT

def inner(x):
    return math.sin(x) * TABLE[1]

@poolrt.kernel("void(f8[::1])")
def negate(x):
    for i in range(x.shape[0]):
        x[i] = -x[i]
""",
    "poolrt_test_package/__init__": "from . import deep",
    "poolrt_test_package/deep": "import poolrt_test_helpers as h\n\ndef f(x):\n    return 2 * h.f(x)",
}


@pytest.fixture
def h(tmp_path: Path) -> Iterator[tuple[ModuleType, ModuleType]]:
    """The module and the package, anew for each test, and a store without Redis."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    for name, text in _MODULES.items():
        path = tmp_path / "modules" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOLRT_HOME", str(home))
        patch.setenv("POOLRT_REDIS_URL", f"unix://{home}/none.sock")
        patch.syspath_prepend(str(tmp_path / "modules"))
        process_store.cache_clear()
        try:
            yield importlib.import_module("poolrt_test_helpers"), importlib.import_module("poolrt_test_package")
        finally:
            for name in set(sys.modules) - before:
                if name.startswith("poolrt_test_"):
                    del sys.modules[name]
            process_store().close()
            process_store.cache_clear()


def _f(x: Any) -> Any:
    return 3 * np.sin(np.asarray(x, "f8")) + 5


def test_a_kernel_calls_functions_of_modules_and_of_modules_in_these(h: tuple[ModuleType, ModuleType]) -> None:
    module, package = h

    def through(given: Any, x: Any) -> Any:
        return given.f(x)

    @poolrt.kernel("void(f8[::1], f8[::1])")
    def kernel(x: Any, y: Any) -> None:
        def nested(value: Any) -> Any:
            return through(package.deep, value) + module.TABLE[0]

        same = module
        for i in range(x.shape[0]):
            y[i] = same.f(x[i]) * module.SHIFT + nested(x[i]) + module.math.cos(x[i]) + np.sqrt(x[i])
        module.negate(y)

    x = np.random.default_rng().uniform(0, 3, 9)
    y = np.zeros_like(x)
    kernel(x, y)
    np.testing.assert_allclose(y, -(5 * _f(x) + 2 * _f(x) + 1 + np.cos(x) + np.sqrt(x)), rtol=1e-14)
    created = poolrt.kernels.stats()["created"]
    assert process_store().stats()["creations"] == 1
    # A graph calls it likewise, and a second kernel of the same code is found
    graph = poolrt.Graph()
    graph.output("y", graph.call(kernel, [graph.input("x", (9,), "float64")], [((9,), "float64")]))
    np.testing.assert_array_equal(poolrt.Executor(graph).run(x=x)["y"], y)
    again: Kernel = poolrt.kernel("void(f8[::1], f8[::1])")(kernel.function)
    again(x, y)
    assert poolrt.kernels.stats()["created"] == created + 1


def test_what_changes_behind_a_module_s_name_makes_another_key(h: tuple[ModuleType, ModuleType]) -> None:
    module, package = h

    @poolrt.kernel("void(f8[::1])")
    def kernel(x: Any) -> None:
        x[0] = package.deep.f(x[0])

    first = kernel.key()
    for name, value, field in (
        ("SHIFT", 6, "callees.poolrt_test_helpers.f.constants.SHIFT"),
        ("TABLE", np.array([1.0, 4.0]), "callees.poolrt_test_helpers.inner.constants.TABLE[-1]"),
        ("f", lambda x: x - 1, "callees.poolrt_test_package.deep.f.constants.h.f[1]"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, value)
            changed = kernel.key()
        assert any(path.startswith(field.partition("[")[0]) for path in changed.diff(first)), changed.diff(first)
    assert kernel.key() == first
    # Given a change, then the kernel that is made afterwards has it
    module.SHIFT = 6  # type: ignore[attr-defined]
    x = np.ones(1)
    poolrt.kernel("void(f8[::1])")(kernel.function)(x)
    assert x[0] == pytest.approx(2 * (_f(1) + 1), rel=1e-14)


def test_a_name_that_a_module_lacks_is_an_error_with_the_kernel_s_place(h: tuple[ModuleType, ModuleType]) -> None:
    module, _ = h

    @poolrt.kernel("void(f8[::1])")
    def kernel(x: Any) -> None:
        x[0] = module.nothing(x[0])

    with pytest.raises(CreationFailed) as raised:
        kernel(np.ones(1))
    assert raised.value.type == "CompileError"
    assert f"({__file__}:" in str(raised.value)
    assert "module 'poolrt_test_helpers' has no attribute 'nothing'" in str(raised.value)


def test_sine_and_cosine_of_one_number_become_one_call_of_the_c_library(h: tuple[ModuleType, ModuleType]) -> None:
    @poolrt.kernel("void(f8[::1], f8[::1])")
    def kernel(x: Any, y: Any) -> None:
        for i in range(x.shape[0]):
            y[i] = np.sin(x[i]) - np.cos(x[i])

    assert b"sincos" in kernel.binary()
    x = np.random.default_rng().normal(size=7)
    y = np.zeros_like(x)
    kernel(x, y)
    np.testing.assert_allclose(y, np.sin(x) - np.cos(x), rtol=1e-13, atol=1e-15)
