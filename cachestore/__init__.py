"""The bytes floor: signed entries under keys, one creator each, bounded, shared on Redis."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .errors import (
        BundleCorrupt,
        BundleForged,
        CreationFailed,
        CreationTimeout,
        EntryCorrupt,
        EntryForged,
        KeyFileRefused,
        PathRefused,
        StoreError,
        StoreReadOnly,
        StoreUnavailable,
    )
    from .key import ABSENT, Key
    from .options import StoreOptions
    from .outcome import Found, Outcome
    from .stats import Stats
    from .store import CacheStore

__all__ = [
    "ABSENT", "BundleCorrupt", "BundleForged", "CacheStore", "CreationFailed", "CreationTimeout", "EntryCorrupt",
    "EntryForged", "Found", "Key", "KeyFileRefused", "Outcome", "PathRefused", "Stats", "StoreError", "StoreOptions",
    "StoreReadOnly", "StoreUnavailable",
]  # fmt: skip

#: Name -> the module that has it, `errors` for those that are not listed. A client of a pool needs the errors only.
_HOMES: Final = {
    "ABSENT": ".key", "CacheStore": ".store", "Found": ".store", "Key": ".key", "Outcome": ".store", "Stats": ".stats",
    "StoreOptions": ".options",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES.get(name, ".errors"), __name__), name)
    globals()[name] = found
    return found
