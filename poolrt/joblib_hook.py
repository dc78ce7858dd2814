"""Registers joblib's backend "poolrt", whichever of the two packages a program imports first. Imports no joblib itself."""

from __future__ import annotations

import sys
from types import ModuleType

# `typing` and `importlib` would take most of the time of importing this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from typing import Any

_PARALLEL = "joblib.parallel"


def install() -> None:
    """Register the backend now if joblib is imported, else when it is. May be repeated."""
    module = sys.modules.get(_PARALLEL)
    if module is not None:
        _register(module)
    elif not any(
        type(finder).__name__ == "_Finder" and type(finder).__module__ == __name__ for finder in sys.meta_path
    ):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds `joblib.parallel` as Python does, once, and lets its loader register the backend."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _PARALLEL:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _register(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _register(module: ModuleType) -> None:
    register = getattr(module, "register_parallel_backend", None)
    if register is not None:
        register("poolrt", _make)


def _make(**arguments: Any) -> Any:
    from .joblib_backend import PoolrtBackend

    return PoolrtBackend(**arguments)
