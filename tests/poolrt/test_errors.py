"""Errors of pools: one tree, with fields that survive pickling and the way to another process."""

from __future__ import annotations

import pickle

import msgpack
import pytest

from poolrt import errors
from poolrt.cachestore import CreationFailed
from poolrt.errors import PoolError, error_from_wire

_ALL = [
    errors.PoolError("message"),
    errors.PoolClosed("closed"),
    errors.CoordinatorLost("gone"),
    errors.PoolRefused("no"),
    errors.GraphRefused("node 'a'"),
    errors.ArenaFull("too small", 100, 50, 80),
    errors.WorkerLost("died", "model", 7, 3),
    errors.RunFailed("failed", "ValueError", "log"),
    errors.CreatorLost("died", "convolution", 2),
    errors.FunctionFailed("failed", "log"),
    errors.InitializerFailed("failed", "log"),
    errors.CallNotLoaded("no such module", "log"),
]


def test_the_list_is_complete() -> None:
    named = {name for name, v in vars(errors).items() if isinstance(v, type) and issubclass(v, PoolError)}
    # Some are errors of `concurrent.futures` too, which are not imported before they are needed.
    kinds = {getattr(errors, errors._USERS_NAMES.get(name, name)) for name in named}
    assert kinds == {type(error) for error in _ALL}


@pytest.mark.parametrize("error", _ALL, ids=lambda e: type(e).__name__)
def test_an_error_crosses_a_process_with_its_fields(error: PoolError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), error_from_wire(msgpack.unpackb(msgpack.packb(error.to_wire())))):  # noqa: S301
        assert type(twin) is type(error)
        assert str(twin) == str(error) == error.message
        assert {name: getattr(twin, name) for name in error.fields()} == {n: getattr(error, n) for n in error.fields()}


@pytest.mark.parametrize(
    "wire", [{}, {"error": "NoSuchError", "message": "a"}, {"error": "WorkerLost", "message": "too few"}, 5]
)
def test_an_error_of_another_version_still_says_something(wire: object) -> None:
    assert type(error_from_wire(wire)) is PoolError


def test_a_creations_error_is_the_stores() -> None:
    assert errors.CreationFailed is CreationFailed
    assert isinstance(
        error_from_wire(CreationFailed("CompileError", "convolution: failed", "log").to_wire()), CreationFailed
    )


def test_errors_can_be_caught_as_what_they_are_in_python() -> None:
    assert issubclass(errors.ArenaFull, MemoryError)
    assert issubclass(errors.GraphRefused, ValueError)
