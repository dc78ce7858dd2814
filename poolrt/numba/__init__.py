"""Numba's functions in the shared cache: each overload is compiled once for all processes and hosts."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # see `poolrt/__init__.py`
if TYPE_CHECKING:
    from typing import Any, Final

    from .counters import NotShared
    from .door import guvectorize, install, njit, not_shared, share, stats, uninstall, vectorize

__all__ = ["NotShared", "guvectorize", "install", "njit", "not_shared", "share", "stats", "uninstall", "vectorize"]

#: Name -> the module that has it. A kernel needs only fingerprints.
_HOMES: Final = {**dict.fromkeys(__all__, ".door"), "NotShared": ".counters"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
