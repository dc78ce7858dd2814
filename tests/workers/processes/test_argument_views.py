"""Views of arguments: what a function has written is found, whoever wrote it, and a call that writes nothing is cheap."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.memory.arena import PAGE, make_arena
from poolrt.workers.ipc.outlined_payload import IN_PLACE, Outlined, Place
from poolrt.workers.memory.arena_view import ArenaView
from poolrt.workers.processes.argument_views import ArgumentViews
from poolrt.workers.processes.page_faults import count_faults

_NBYTES = 512 * PAGE
_BEGIN, _SIZE = 3 * PAGE + 128, 400 * PAGE
_looks: list[str] = []
_watched = threading.Event()


@pytest.fixture(scope="module", autouse=True)
def _watch() -> None:
    """Note each look at which pages were written."""

    def note(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and _watched.is_set() and args[0] == "/proc/self/pagemap":
            _looks.append(args[0])

    sys.addaudithook(note)


class _Calls:
    """Calls with one argument, which is in the arena."""

    def __init__(self) -> None:
        self.fd = make_arena(_NBYTES)
        self.arena = ArenaView(self.fd)
        self.views = ArgumentViews(self.arena, self.fd)
        self.shared: NDArray[Any] = np.frombuffer(self.arena.buffer(_BEGIN, _SIZE), np.uint8)

    def call(self, function: Callable[[NDArray[Any]], object]) -> bool:
        """Call a function; return whether its argument can be named as a result, which a written one cannot."""
        (buffer,) = self.views.open(Outlined([], [Place(IN_PLACE, _BEGIN, _SIZE)], memoryview(b"")))
        argument = np.frombuffer(buffer, np.uint8)
        address = argument.__array_interface__["data"][0]
        np.testing.assert_array_equal(argument[::PAGE], self.shared[::PAGE])
        function(argument)
        found = self.views.find(address, _SIZE)
        del buffer, argument
        self.views.close()
        return found == (0, 0)


@pytest.fixture
def calls() -> Iterator[_Calls]:
    made = _Calls()
    yield made
    os.close(made.fd)


def _write_from_a_file(x: NDArray[Any]) -> None:
    """Let the system write."""
    with open("/dev/zero", "rb", buffering=0) as file:
        assert file.readinto(x.data[7 * PAGE : 7 * PAGE + 5]) == 5


def _write_from_a_pipe(x: NDArray[Any]) -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"abc")
        assert os.readv(reading, [x.data[-3:]]) == 3
    finally:
        os.close(reading)
        os.close(writing)


def _write_one(x: NDArray[Any]) -> None:
    x[np.random.default_rng().integers(x.size)] ^= 255


def _write_in_a_thread(x: NDArray[Any]) -> None:
    thread = threading.Thread(target=_write_one, args=(x,))
    thread.start()
    thread.join()


def _write_what_is_there(x: NDArray[Any]) -> None:
    x[:] = x.copy()


@pytest.mark.parametrize(
    "write",
    [_write_one, _write_in_a_thread, _write_from_a_file, _write_from_a_pipe, _write_what_is_there],
)
def test_what_is_written_in_any_way_is_found_and_no_later_call_sees_it(
    calls: _Calls, write: Callable[[NDArray[Any]], object]
) -> None:
    rng = np.random.default_rng()
    for _ in range(5):
        calls.shared[:] = rng.integers(0, 256, _SIZE)
        before = calls.shared.copy()
        assert calls.call(np.sum), "a function that only reads"
        assert not calls.call(write)
        np.testing.assert_array_equal(calls.shared, before)
        assert calls.call(partial(np.testing.assert_array_equal, before))


def test_a_call_that_writes_nothing_does_not_look_at_all_pages(calls: _Calls) -> None:
    """As soon as its pages were read once."""
    assert count_faults() >= 0, "this system counts faults"
    _watched.set()
    try:
        calls.call(np.sum)
        _looks.clear()
        assert calls.call(_write_one) is False
        assert len(_looks) >= 1, "looks are seen"
        counts = []
        for _ in range(200):
            _looks.clear()
            assert calls.call(lambda x: x[0])
            counts.append(len(_looks))
        assert counts.count(0) > 150
    finally:
        _watched.clear()


class _PlacedCalls(_Calls):
    """Calls whose argument is named by its place, so that its view is made once."""

    def call(self, function: Callable[[NDArray[Any]], object]) -> bool:
        (buffer,) = self.views.open_places((Place(IN_PLACE, _BEGIN, _SIZE),))
        argument: NDArray[Any] = np.ndarray((_SIZE,), np.uint8, buffer)
        address = argument.__array_interface__["data"][0]
        np.testing.assert_array_equal(argument[::PAGE], self.shared[::PAGE])
        function(argument)
        found = self.views.find(address, _SIZE)
        del buffer, argument
        self.views.close()
        return found == (0, 0)


@pytest.fixture
def placed() -> Iterator[_PlacedCalls]:
    made = _PlacedCalls()
    yield made
    os.close(made.fd)


@pytest.mark.parametrize(
    "write",
    [_write_one, _write_in_a_thread, _write_from_a_file, _write_from_a_pipe, _write_what_is_there],
)
def test_what_is_written_to_a_view_that_is_used_again_is_found(
    placed: _PlacedCalls, write: Callable[[NDArray[Any]], object]
) -> None:
    test_what_is_written_in_any_way_is_found_and_no_later_call_sees_it(placed, write)


def test_a_view_that_is_used_again_is_not_made_again(placed: _PlacedCalls) -> None:
    bases: list[int] = []
    kept: list[NDArray[Any]] = []
    for _ in range(3):
        placed.call(lambda x: bases.append(id(x.base)))
    assert len(set(bases)) == 1
    placed.call(kept.append)
    placed.call(kept.append)
    assert id(kept[0].base) in bases
    assert id(kept[1].base) not in bases, "one that is kept is not used again"


@pytest.mark.parametrize(
    "keep",
    [lambda x: x, lambda x: x[5:9], memoryview, lambda x: x.base, lambda x: iter(x), lambda x: [[x]]],
    ids=["array", "view", "memoryview", "base", "iterator", "container"],
)
def test_whatever_is_kept_of_a_view_keeps_its_bytes(
    placed: _PlacedCalls, keep: Callable[[NDArray[Any]], object]
) -> None:
    """Given a view that earlier calls have used, when a call keeps something of it, then no later call or write changes that."""
    kept: list[tuple[object, int, NDArray[Any]]] = []

    def keeps(x: NDArray[Any]) -> None:
        # By its address, because what is kept is not always an array.
        kept.append((keep(x), x.ctypes.data, x.copy()))

    rng = np.random.default_rng()
    for _ in range(3):
        for _ in range(3):
            placed.shared[:] = rng.integers(0, 256, _SIZE)
            placed.call(np.sum)
        placed.call(keeps)
    placed.shared[:] = 0
    placed.call(np.sum)
    assert len(kept) == 3
    for _, address, expected in kept:
        found = np.ctypeslib.as_array((ctypes.c_uint8 * _SIZE).from_address(address))
        np.testing.assert_array_equal(found, expected)


def test_faults_between_calls_do_not_cost_a_look_at_all_pages_each(placed: _PlacedCalls) -> None:
    assert count_faults() >= 0, "this system counts faults"
    placed.call(np.sum)
    _watched.set()
    try:
        _looks.clear()
        for _ in range(100):
            with mmap.mmap(-1, PAGE) as page:
                page[0] = 1  # a fault
            placed.call(lambda x: x[0])
        assert len(_looks) < 30
    finally:
        _watched.clear()
