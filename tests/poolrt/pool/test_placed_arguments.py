"""Arrays that are in shared memory already, as arguments of functions on rings: named in place, beside scalars."""

from __future__ import annotations

import os
import signal
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import poolrt
from poolrt.errors import CallNotLoaded, WorkerLost
from poolrt.functions import call_pickles
from poolrt.workers.ipc.call_ring import SubmittingCallRing
from poolrt.workers.ipc.protocol import PLACED
from poolrt.workers.processes.placed_arrays import Held, pack_placed

from .called_with_arrays import describe_all, last, overwrite, raise_first, sum_when_gone
from .processes import BOUND_S, wait_until


@pytest.fixture
def own_pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        yield pool


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list that gets the arguments of each call that names arrays in place."""
    found: list[bytes] = []
    append = SubmittingCallRing.append

    def noted(ring: SubmittingCallRing, function: int, request: int, arguments: bytes) -> int:
        if function & PLACED:
            found.append(arguments)
        return append(ring, function, request, arguments)

    monkeypatch.setattr(SubmittingCallRing, "append", noted)
    return found


def _shared(pool: poolrt.Pool, seed: int = 0) -> NDArray[Any]:
    found: NDArray[Any] = pool.empty((60, 500), "int32")
    found[...] = np.random.default_rng(seed).integers(-99, 99, found.shape)
    return found


def _warm(pool: poolrt.Pool, function: Any, *args: Any) -> None:
    """Let a function be called on rings."""
    calls = pool._session.link.client.calls
    before = len(calls._rings)

    def is_warm() -> bool:
        pool.submit(function, *args).result(BOUND_S)
        kept = pool._functions(pool._session.link)._pickles.find(function)
        return kept is not None and any(kept.number in ring.functions for ring in calls._rings.values())

    wait_until(is_warm, "the function is called on rings")
    assert len(calls._rings) >= before


def test_arrays_of_the_arena_and_scalars_arrive_as_they_are(own_pool: poolrt.Pool, placed: list[bytes]) -> None:
    x = _shared(own_pool)
    _warm(own_pool, describe_all, x, 1)
    shared: list[tuple[Any, ...]] = [
        (x,),
        (x.T, 5, x[20:], "text"),
        (None, x.reshape(3, 100, 100)[1:], 2.5, x.view("f4"), True, b"b"),
        (x.view("M8[ms]"), 1 << 80, x[10:40].view("u1")),
    ]
    for args in shared:
        expected = [(a.shape, a.dtype.str, a.strides, True, a.tobytes()) if hasattr(a, "shape") else a for a in args]
        before = len(placed)
        for _ in range(3):  # a call after an import is pickled
            assert own_pool.submit(describe_all, *args).result(BOUND_S) == expected
        assert len(placed) > before
    # Given anything else among the arguments, they are pickled, and arrive too
    for args in ((x, [1]), (x, x), (x, np.zeros(9)), (x[:, ::2], 3)):
        before = len(placed)
        found = own_pool.submit(describe_all, *args).result(BOUND_S)
        assert len(placed) == before
        assert found[0][4] == args[0].tobytes()


def test_a_function_writes_to_memory_of_its_own(own_pool: poolrt.Pool, placed: list[bytes]) -> None:
    x = _shared(own_pool)
    before = x.copy()
    _warm(own_pool, overwrite, x, 1)
    placed.clear()
    for value in range(20):
        assert own_pool.submit(overwrite, x, value).result(BOUND_S) == value * x.size
        assert own_pool.submit(sum_when_gone, "", x).result(BOUND_S) == before.sum()
    assert len(placed) >= 20
    np.testing.assert_array_equal(x, before)


def test_a_piece_that_is_returned_is_the_callers_memory_and_errors_come_back(
    own_pool: poolrt.Pool, placed: list[bytes]
) -> None:
    x = _shared(own_pool)
    _warm(own_pool, last, x, 30)
    _warm(own_pool, last, x.T, 30)
    placed.clear()
    for array in (x, x.T) * 5:  # a call after an import is pickled
        found = own_pool.submit(last, array, 40).result(BOUND_S)
        np.testing.assert_array_equal(found, array[-40:])
        if array is x:
            assert np.shares_memory(found, x)
            assert not found.flags.writeable
    assert len(placed) >= 5
    for _ in range(6):
        with pytest.raises(LookupError, match=str(x[0, 0])):
            own_pool.submit(raise_first, x.reshape(-1)).result(BOUND_S)
    assert len(placed) > 2


def test_calls_that_a_lost_worker_has_not_begun_are_called_elsewhere(
    settings: dict[str, Any], placed: list[bytes], tmp_path: Path
) -> None:
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        arrays = [_shared(pool, seed) for seed in range(8)]
        _warm(pool, sum_when_gone, "", arrays[0])
        placed.clear()
        hold = tmp_path / "hold"
        hold.touch()
        first = pool.submit(sum_when_gone, str(hold), arrays[0])
        others = [pool.submit(sum_when_gone, "", x) for x in arrays]
        expected = [float(x.sum()) for x in arrays]
        assert len(placed) >= 9
        wait_until(first.running, "the first is called")
        kept = [weakref.ref(x) for x in arrays]
        del arrays  # the calls keep them
        (worker,) = pool.stats()["workers"]
        os.kill(worker["pid"], signal.SIGKILL)
        with pytest.raises(WorkerLost):
            first.result(BOUND_S)
        hold.unlink()
        assert [future.result(BOUND_S) for future in others] == expected
        wait_until(lambda: not any(each() is not None for each in kept), "no call keeps one")


def test_damaged_places_are_the_error_of_their_call(own_pool: poolrt.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = _shared(own_pool)
    _warm(own_pool, sum_when_gone, "", x)
    damages = [(b"i\x3c\0\0\0", b"i\xff\xff\xff\x7f"), (b"<i4", b"|O8"), (b"u\2\0\0\0sC", b"i\2\0\0\0sC")]

    def damaged(args: tuple[Any, ...], find: Callable[[int, int], int]) -> tuple[bytes, list[Held]] | None:
        packed = pack_placed(args, find)
        assert packed is not None
        return (packed[0].replace(*damages.pop()), packed[1]) if damages else packed

    monkeypatch.setattr(call_pickles, "pack_placed", damaged)
    for _ in range(50):
        left = len(damages)
        future = own_pool.submit(sum_when_gone, "", x)
        if len(damages) < left:  # not pickled, because a module was imported meanwhile
            with pytest.raises(CallNotLoaded, match="a function or its arguments cannot be loaded"):
                future.result(BOUND_S)
        else:
            assert future.result(BOUND_S) == x.sum()
    assert not damages
