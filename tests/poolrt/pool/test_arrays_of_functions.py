"""Arrays to functions and back through shared memory: right in any shape, never changed by a later call, and all given back."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import poolrt
from poolrt.errors import PoolRefused, WorkerLost
from poolrt.workers.ipc.outlined_payload import LONG

from .called_with_arrays import (
    count_up,
    double_or_die,
    keep,
    keep_and_write,
    kept,
    kept_and_written,
    nested,
    same,
    scribble,
    sum_in_fork,
    threes,
    with_what_it_is,
    write_in_fork,
)
from .processes import BOUND_S, wait_until
from .servers import started

_RECORD = np.dtype([("key", "<i4"), ("value", ">f8"), ("text", "U3")])


@pytest.fixture
def own_pool(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        yield pool


def _used(pool: poolrt.Pool) -> int:
    gc.collect()
    memory = pool._session.link.memory
    memory._release_kept()
    used: int = pool.stats(BOUND_S)["arena"]["used"]
    return used


def _arrays(random: np.random.Generator) -> dict[str, NDArray[Any]]:
    base = random.standard_normal((61, 83, 5)).astype(np.float32)
    large = random.standard_normal((300, 401))
    records = np.zeros((57, 131), _RECORD)
    records["key"] = random.integers(0, 99, records.shape)
    records["value"] = random.standard_normal(records.shape)
    records["text"] = "xyz"
    return {
        "odd": base,
        "fortran": np.asfortranarray(large),
        "transposed": base.transpose(2, 0, 1),
        "sliced": large[3:-5:2, 7::3],
        "backwards": large[::-1, ::-2],
        "broadcast": np.broadcast_to(large[:1], (50, 401)),
        "unaligned": np.frombuffer(random.bytes(80_001), np.uint8)[1:].view(np.float64),
        "big endian": large.astype(">f8"),
        "records": records,
        "records sliced": records[::2, ::-3],
        "dates": np.arange(20_000).astype("M8[ms]").reshape(2, -1),
        "texts": np.full((40, 90), "text", "U11"),
        "complex": (large + 1j * large).astype(np.complex64),
        "bools": large > 0,
        "halves": large.astype(np.float16),
        "read-only": _read_only(large.copy()),
        "empty": np.zeros((0, 7), np.int16),
        "empty sliced": large[:0, ::2],
        "scalar": np.array(3.5),
        "short": np.arange(7, dtype=np.int8),
        "at the limit": np.zeros(LONG, np.uint8),
        "below the limit": np.zeros(LONG - 1, np.uint8),
        "no bytes": np.zeros((3, 4), "S0"),
        "objects": np.array([None, "a", 3] * 9000, object),
    }


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("name", [*_arrays(np.random.default_rng(0))])
def test_an_array_arrives_and_returns_as_it_is(pool: poolrt.Pool, name: str) -> None:
    """Given an array of some order in memory, when a function gets and returns it, by message or ring, then it is the same."""
    array = _arrays(np.random.default_rng())[name]
    expected = array.copy(order="K")
    for _ in range(6):
        (shape, dtype, in_c, in_fortran, data), same, copy = pool.submit(with_what_it_is, array).result(BOUND_S)
        assert (shape, dtype) == (array.shape, array.dtype)
        if array.flags.forc:
            assert (in_c, in_fortran) == (array.flags.c_contiguous, array.flags.f_contiguous)
        if not dtype.hasobject:
            assert data == array.tobytes()
        for got in (same, copy):
            assert got.dtype == array.dtype
            assert got.shape == array.shape
            np.testing.assert_array_equal(got, expected)


def test_containers_with_several_arrays_bytes_and_the_same_array_twice(pool: poolrt.Pool) -> None:
    """Given arrays, bytes and a bytearray in containers, then each is right, and one array twice is one array in the worker."""
    random = np.random.default_rng()
    first, second = random.integers(0, 99, (200, 301)), random.standard_normal((77, 501))
    more = random.bytes(70_001), bytearray(random.bytes(50_000)), b"short", list(range(30_000))
    for _ in range(6):
        got = pool.submit(nested, {"first": first, "others": [second, first]}, *more, key=first[::2]).result(BOUND_S)
        assert got["sums"] == [first.sum(), second.sum()]
        assert got["same twice"]
        np.testing.assert_array_equal(got["views"][0], first[1:])
        np.testing.assert_array_equal(got["views"][1], first[:, 0])
        np.testing.assert_array_equal(got["views"][2], second)
        assert got["bytes"] == more
        assert type(got["bytes"][1]) is bytearray
        np.testing.assert_array_equal(got["key"], first[::2])
        np.testing.assert_array_equal(got["new"][0], second * 2)
        np.testing.assert_array_equal(got["new"][1], first + 1)


def test_a_result_in_shared_memory_goes_to_the_next_call_without_a_copy(own_pool: poolrt.Pool) -> None:
    """Given a result, when it is an argument and comes back, then it is the same memory, which neither array may change."""
    array = np.random.default_rng().standard_normal((500, 300))
    for _ in range(4):
        own_pool.submit(np.negative, array).result(BOUND_S)
    first = own_pool.submit(np.negative, array).result(BOUND_S)
    assert first.flags.writeable
    second = own_pool.submit(same, first).result(BOUND_S)
    assert np.shares_memory(first, second)
    assert not second.flags.writeable
    mine = own_pool.empty((500, 300), "float64")
    mine[:] = array
    third = own_pool.submit(same, mine).result(BOUND_S)
    assert np.shares_memory(mine, third)
    del mine, first
    other = own_pool.submit(np.negative, np.ones_like(array)).result(BOUND_S)
    np.testing.assert_array_equal(other, -np.ones_like(array))
    np.testing.assert_array_equal(second, -array)
    np.testing.assert_array_equal(third, array)


def test_a_result_that_is_dropped_is_free_at_once_by_messages_and_on_rings(own_pool: poolrt.Pool) -> None:
    """Not when the collector comes: a large one would be written to new memory each time meanwhile."""
    x = np.random.default_rng().integers(0, 256, 1 << 20, np.uint8)
    memory = own_pool._session.memory
    functions: list[Callable[[Any], Any]] = [same, np.copy, same]
    gc.disable()
    try:
        for function in functions:
            for _ in range(8):
                result = own_pool.submit(function, x).result(BOUND_S)
                np.testing.assert_array_equal(result, x)
                del result
                wait_until(lambda: not memory._in_use, "it is free")
    finally:
        gc.enable()


def test_a_result_is_writable_and_no_other_array_changes_with_it(own_pool: poolrt.Pool) -> None:
    """Given a copied argument that comes back, when it is written, then neither the argument nor another result changes."""
    array = np.random.default_rng().standard_normal(60_000)
    before = array.copy()
    own = array
    for _ in range(6):
        own = own_pool.submit(same, array).result(BOUND_S)
        own[:] = 7
        left, right = own_pool.submit(lambda x: (x[:30_000], x), array).result(BOUND_S)
        if left.flags.writeable:
            left[:] = 8
        np.testing.assert_array_equal(right, before)
    np.testing.assert_array_equal(array, before)
    assert (own == 7).all()


@pytest.mark.parametrize("count", [10_000, 400_000])
def test_an_array_that_a_function_keeps_never_changes(settings: dict[str, Any], count: int) -> None:
    """Given a function that keeps its arguments, when later calls use the memory again, then the kept arrays are as they were."""
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        for number in range(8):
            pool.submit(keep, np.full(count, number, np.float32), number).result(BOUND_S)
            pool.submit(same, np.full(count, 99, np.float32)).result(BOUND_S)
        for number, whole, part in pool.submit(kept, 0).result(BOUND_S):
            assert (whole == number).all()
            assert (part == number).all()
            assert len(whole) == count
            assert len(part) == count - 5


def test_a_process_that_a_function_forks_reads_its_arguments(own_pool: poolrt.Pool) -> None:
    """Given a large argument, when the function forks, then the child can read it."""
    array = np.random.default_rng().integers(0, 99, 300_000)
    for _ in range(6):
        assert own_pool.submit(sum_in_fork, array).result(BOUND_S) == array.sum()


@pytest.mark.parametrize("in_arena", [False, True], ids=["copied", "in the arena"])
@pytest.mark.parametrize(
    "places",
    [
        slice(None),
        slice(70_000, 70_001),
        *(pytest.param(s, marks=pytest.mark.slow) for s in (slice(-1, None), slice(0))),
    ],
    ids=str,
)
def test_what_a_function_writes_to_its_argument_only_it_sees(pool: poolrt.Pool, in_arena: bool, places: slice) -> None:
    """Given functions that write to a large argument, then each sees the caller's values first and returns its own."""
    random = np.random.default_rng()
    array = pool.empty((100_003,), "float64") if in_arena else np.zeros(100_003)
    for _ in range(8):
        array[:] = random.integers(0, 99, len(array))
        was, expected = array.copy(), array.copy()
        expected[places] += 1
        futures = [pool.submit(count_up, array, places) for _ in range(4)]
        for future in futures:
            before, whole, part = future.result(BOUND_S)
            assert before == was.sum()
            np.testing.assert_array_equal(whole, expected)
            np.testing.assert_array_equal(part, expected[-1000:])
        assert pool.submit(write_in_fork, array).result(BOUND_S) == was.sum()
        np.testing.assert_array_equal(array, was)


def test_an_array_that_is_kept_has_what_the_function_wrote(settings: dict[str, Any]) -> None:
    """Given a function that writes to half of an argument and keeps it, when others use its memory, then both halves stay."""
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        for number in range(6):
            pool.submit(keep_and_write, np.full(100_000, number), number).result(BOUND_S)
            assert pool.submit(count_up, np.full(100_000, 7), slice(9)).result(BOUND_S)[0] == 700_000
            for kept, x in pool.submit(kept_and_written, 0).result(BOUND_S):
                assert (x[:50_000] == -kept).all()
                assert (x[50_000:] == kept).all()


def test_books_of_the_arena_are_as_before_after_calls_cancels_and_errors(own_pool: poolrt.Pool) -> None:
    """Given many calls with arrays, some cancelled or failing, when all results are gone, then no slot is held."""
    array = np.random.default_rng().standard_normal(100_000)
    for _ in range(5):
        own_pool.submit(same, array).result(BOUND_S)
    assert not _used(own_pool)
    functions: list[Callable[[Any], Any]] = [same, np.negative, scribble]
    futures = [own_pool.submit(functions[i % 3], array) for i in range(60)]
    cancelled = [future.cancel() for future in futures[::-7]]
    while futures:
        future = futures.pop(0)
        if not future.cancelled():
            with suppress(ValueError):
                future.result(BOUND_S)
        del future
    found = list(own_pool.map(np.negative, [array] * 30, timeout=BOUND_S))
    np.testing.assert_array_equal(found[-1], -array)
    for each in own_pool.map(np.negative, [array] * 30, timeout=BOUND_S, chunksize=4):
        np.testing.assert_array_equal(each, -array)
        del each
    iterator = own_pool.map(same, [array] * 30)
    next(iterator)
    del iterator, found
    assert any(cancelled) or cancelled
    wait_until(lambda: not _used(own_pool), "all slots are given back")


def test_books_of_the_arena_are_as_before_after_kills(own_pool: poolrt.Pool, tmp_path: Path) -> None:
    """Given calls with arrays, when workers are killed in them, then the others return, and no slot is held."""
    even = np.random.default_rng().standard_normal(100_000)
    path = str(tmp_path / "pid")
    for _ in range(5):
        own_pool.submit(double_or_die, even, path).result(BOUND_S)
    assert not _used(own_pool)
    for number in range(6):
        futures = [own_pool.submit(double_or_die, even, path) for _ in range(5)]
        lost = own_pool.submit(double_or_die, even[: 99_999 - 2 * number], path)
        futures += [own_pool.submit(double_or_die, even, path) for _ in range(5)]
        with pytest.raises(WorkerLost):
            lost.result(BOUND_S)
        while futures:
            np.testing.assert_array_equal(futures.pop(0).result(BOUND_S), even * 2)
        del lost
    wait_until(lambda: not _used(own_pool), "all slots are given back")


@pytest.mark.slow
def test_books_of_the_arena_are_as_before_after_a_client_is_killed(settings: dict[str, Any], tmp_path: Path) -> None:
    """Given a server, when a client is killed in the middle of calls with arrays, then all that it held is free."""
    path = tmp_path / "pool.sock"
    with started(path, settings, workers=2), poolrt.connect(path) as pool:
        array = np.random.default_rng().standard_normal(200_000)
        pool.submit(same, array).result(BOUND_S)
        assert not _used(pool)
        for pause_s in (0.05, 0.3, 0.6):
            child = os.fork()
            if not child:
                with suppress(BaseException):
                    other = poolrt.connect(path)
                    Path(tmp_path / "begun").write_text("")
                    while True:
                        for future in [other.submit(np.negative, array) for _ in range(6)]:
                            future.result(BOUND_S)
                os._exit(1)
            wait_until((tmp_path / "begun").exists, "the client calls functions")
            time.sleep(pause_s)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            (tmp_path / "begun").unlink()
            wait_until(lambda: not _used(pool), "all that the client held is free")


@pytest.mark.parametrize("length", [1, pytest.param(100, marks=pytest.mark.slow)])
def test_a_full_arena_loses_nothing(settings: dict[str, Any], length: int) -> None:
    """Given an arena that arrays of this client fill, when functions get and return long arrays, then they come by messages."""
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        full = [pool.empty(15 << 20, "uint8") for _ in range(4)]
        array = np.random.default_rng().integers(0, 99, length << 16)
        for _ in range(5):
            np.testing.assert_array_equal(pool.submit(same, array).result(BOUND_S), array)
            assert pool.submit(threes, 30 << 20).result(BOUND_S).sum() == 3 * (30 << 20)
        del full


def test_calls_of_a_program_that_has_all_slots_go_by_messages(own_pool: poolrt.Pool) -> None:
    """Given a program that has as many slots as it may, when functions get and return arrays, then they come by messages."""
    array = np.random.default_rng().standard_normal(50_000)
    memory = own_pool._session.link.memory
    for count in (1024, 32, 1):
        with pytest.raises(PoolRefused, match="more than 65536 tensors"):
            while True:
                memory.take([1] * count)
    for _ in range(5):
        np.testing.assert_array_equal(own_pool.submit(np.negative, array).result(BOUND_S), -array)


def test_what_can_never_fit_is_an_error_that_says_so(own_pool: poolrt.Pool) -> None:
    """Given arguments or a result longer than arena and messages, then the error has the numbers and the setting."""
    function: Callable[[int], Any] = threes
    with pytest.raises(PoolRefused, match=r"134[0-9]+ bytes, more than"):
        own_pool.submit(same, np.zeros(128 << 20, np.uint8))
    with pytest.raises(ValueError, match="POOLRT_ARENA_BYTES"):
        own_pool.submit(function, 128 << 20).result(BOUND_S)
    assert own_pool.submit(same, 3).result(BOUND_S) == 3
