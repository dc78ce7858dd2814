"""The bytes floor: signed entries under keys, one creator each, bounded, shared on Redis."""

from __future__ import annotations

from .errors import (
    BundleCorrupt,
    BundleForged,
    CreationFailed,
    CreationTimeout,
    EntryCorrupt,
    EntryForged,
    KeyFileRefused,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from .key import ABSENT, Key
from .options import StoreOptions
from .stats import Stats
from .store import CacheStore, Found, Outcome

__all__ = [
    "ABSENT",
    "BundleCorrupt",
    "BundleForged",
    "CacheStore",
    "CreationFailed",
    "CreationTimeout",
    "EntryCorrupt",
    "EntryForged",
    "Found",
    "Key",
    "KeyFileRefused",
    "Outcome",
    "Stats",
    "StoreError",
    "StoreOptions",
    "StoreReadOnly",
    "StoreUnavailable",
]
