"""Every error survives pickling, copying and its wire form."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from poolrt.cachestore import (
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
from poolrt.cachestore.errors import KeyFileNotMade, StoreFull

ERRORS = [
    StoreError("something"),
    StoreUnavailable("redis://host", "refused"),
    StoreFull("redis://host", "OOM"),
    KeyFileRefused("/a/key", "its mode"),
    PathRefused("/a/folder", "its mode"),
    KeyFileNotMade("/a/key", "it cannot be made"),
    EntryCorrupt("ab" * 32, "short"),
    EntryForged("ab" * 32, "0011"),
    BundleCorrupt("/a/bundle", "short"),
    BundleForged("/a/bundle", "0011", "2233"),
    StoreReadOnly("clear"),
    CreationFailed("LoweringError", "no such type", "line 1\nline 2"),
    CreationTimeout("ab" * 32, 1.5),
]


def fields_of(error: Exception) -> tuple[Any, ...]:
    """Return everything that makes up an error."""
    return type(error), str(error), vars(error)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_copying_and_the_wire(error: StoreError) -> None:
    assert fields_of(pickle.loads(pickle.dumps(error))) == fields_of(error)  # noqa: S301
    assert fields_of(error.copy()) == fields_of(error)
    assert fields_of(StoreError.from_wire(json.loads(json.dumps(error.to_wire())))) == fields_of(error)


def test_every_error_of_the_store_is_a_store_error() -> None:
    assert all(isinstance(error, StoreError) for error in ERRORS)


def test_an_unknown_error_from_a_newer_peer_is_still_a_store_error() -> None:
    error = StoreError.from_wire({"error": "EntryStale", "message": "too old"})
    assert type(error) is StoreError
    assert "EntryStale: too old" in str(error)


@pytest.mark.parametrize(
    "wire", [None, [], {}, {"error": 1}, {"error": "CreationFailed"}, {"error": "CreationTimeout", "digest": 1}]
)
def test_other_data_is_refused(wire: object) -> None:
    with pytest.raises(ValueError, match="wire"):
        StoreError.from_wire(wire)


def test_a_copy_keeps_the_cause_but_has_a_traceback_of_its_own() -> None:
    error = CreationFailed("A", "b")
    error.__cause__ = ValueError("b")
    twin = error.copy()
    assert twin is not error
    assert twin.__cause__ is error.__cause__
