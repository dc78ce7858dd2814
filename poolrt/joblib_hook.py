"""Registers joblib's backend "poolrt", whichever of the two packages a program imports first. Imports no joblib itself."""

from __future__ import annotations

from .import_hook import when_imported

# `typing` would take most of the time of importing this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def install() -> None:
    """Register the backend now if joblib is imported, else when it is."""
    when_imported("joblib.parallel", _register)


def _register(module: ModuleType) -> None:
    register = getattr(module, "register_parallel_backend", None)
    if register is not None:
        register("poolrt", _make)


def _make(**arguments: Any) -> Any:
    from .joblib_backend import PoolrtBackend

    return PoolrtBackend(**arguments)
