"""Futures that the thread which waits resolves: results, waits of `concurrent.futures`, cancels, interrupts, cycles."""

from __future__ import annotations

import concurrent.futures
import gc
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from poolrt.connection.futures import PoolFuture


class _Later:
    """Settles futures in the order of `ready`: in the thread that drives, or in its own once one is wanted."""

    def __init__(self) -> None:
        self.ready: deque[tuple[PoolFuture[Any], Any]] = deque()
        self.threads: list[threading.Thread] = []
        self.looks = 0

    def make(self, value: object) -> PoolFuture[Any]:
        future: PoolFuture[Any] = PoolFuture()
        future.driver = self
        future.withdraw = lambda: self._take_back(future)
        self.ready.append((future, value))
        return future

    def drive(self, future: PoolFuture[Any], deadline: float | None) -> None:
        while self.ready and (deadline is None or time.monotonic() < deadline):
            each, value = self.ready.popleft()
            each.settle(value) if not isinstance(value, BaseException) else each.settle(None, value)
            if each is future:
                return
        if deadline is not None:
            time.sleep(max(0.0, deadline - time.monotonic()))

    def look(self, future: PoolFuture[Any]) -> None:
        self.looks += 1

    def want(self, future: PoolFuture[Any]) -> None:
        thread = threading.Thread(target=self.drive, args=(future, None))
        self.threads.append(thread)
        thread.start()

    def _take_back(self, future: PoolFuture[Any]) -> bool:
        found = [pair for pair in self.ready if pair[0] is future]
        for pair in found:
            self.ready.remove(pair)
        return bool(found)


@pytest.fixture
def later() -> Any:
    driver = _Later()
    yield driver
    for thread in driver.threads:
        thread.join(5)


def test_a_waiter_resolves_its_future_and_makes_no_condition(later: _Later) -> None:
    first, second = later.make(1), later.make(2)
    assert not second.done()
    assert second.result(5) == 2
    assert (first.done(), first.result(), first.exception()) == (True, 1, None)
    assert second._made is None
    assert not later.threads


def test_an_exception_is_raised_and_a_wait_has_its_bound(later: _Later) -> None:
    failed = later.make(ZeroDivisionError("7"))
    with pytest.raises(ZeroDivisionError, match="7"):
        failed.result()
    assert isinstance(failed.exception(), ZeroDivisionError)
    never: PoolFuture[Any] = PoolFuture()
    never.driver = later
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        never.result(0.05)
    assert 0.05 <= time.monotonic() - begin < 2


def test_waits_and_callbacks_of_the_standard_library_are_served_by_a_thread(later: _Later) -> None:
    futures: list[concurrent.futures.Future[int]] = [later.make(number) for number in range(20)]
    assert {each.result() for each in concurrent.futures.as_completed(futures, 5)} == set(range(20))
    called: list[int] = []
    noted = later.make(5)
    noted.add_done_callback(lambda future: called.append(future.result()))
    done, _ = concurrent.futures.wait([noted], 5)
    assert done == {noted}
    for thread in later.threads:
        thread.join(5)
    assert called == [5]


def test_a_cancelled_future_is_taken_back_and_a_resolved_one_is_not_cancelled(later: _Later) -> None:
    future, other = later.make(1), later.make(2)
    assert future.cancel()
    assert future.cancelled()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    assert other.result() == 2
    assert not other.cancel()


def test_two_threads_that_meet_at_one_future_both_get_its_result() -> None:
    for _ in range(300):
        future: PoolFuture[int] = PoolFuture()
        found: list[int] = []
        waiting = threading.Thread(target=lambda future=future, found=found: found.append(future.result(5)))
        waiting.start()
        future.settle(3)
        waiting.join(5)
        assert found == [3]


def test_a_settled_future_keeps_nothing_and_may_be_settled_again(later: _Later) -> None:
    class Value:
        pass

    gc.disable()
    try:
        value = Value()
        future = later.make(value)
        gone = weakref.ref(future), weakref.ref(value)
        assert future.result() is value
        future.settle(4)  # as after an interrupt: the first outcome stays
        assert future.result() is value
        assert future.withdraw is None
        del future, value
        assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()


class _Left(PoolFuture[int]):
    """A future whose driver is dropped by another thread between any two reads of it."""

    reads = 0

    def __getattribute__(self, name: str) -> Any:
        if name != "driver":
            return super().__getattribute__(name)
        self.reads += 1
        return _Later() if self.reads % 2 else None


def test_a_driver_that_another_thread_drops_meanwhile_is_no_error() -> None:
    future = _Left()
    assert not future.done()
    future.reads = 0
    assert not future.running()
    future.reads = 0
    future.add_done_callback(lambda _: None)
    future.reads = 0
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0.01)


@pytest.mark.parametrize("change", [lambda future: future.settle(7), PoolFuture.note_cancelled, PoolFuture.note_begun])
def test_no_future_changes_while_a_waiter_holds_its_condition(change: Callable[[PoolFuture[Any]], None]) -> None:
    """`concurrent.futures.wait` counts the futures that are done, then waits for reports of the others; none may do both."""
    future, other = PoolFuture[Any](), PoolFuture[Any]()
    thread = threading.Thread(target=change, args=(future,))
    with future._condition:
        thread.start()
        thread.join(0.2)
        assert not future.done()
        assert not future.running()
    thread.join(5)
    assert future.done() or future.running()
    assert concurrent.futures.wait([future, other], timeout=0.05).not_done == {other} | (
        {future} if future.running() else set()
    )


def test_an_interrupt_while_waiters_are_told_tells_each_once() -> None:
    future = PoolFuture[int]()
    told: list[int] = []

    class Waiter:
        def __init__(self, number: int) -> None:
            self.number = number

        def add_result(self, _: object) -> None:
            told.append(self.number)
            if self.number == 0:
                signal.raise_signal(signal.SIGINT)

    with future._condition:
        future._waiters.extend([Waiter(0), Waiter(1)])
    with pytest.raises(KeyboardInterrupt):
        future.settle(7)
    assert told == [0, 1]
    future.settle(7)
    assert (told, future.result(0)) == ([0, 1], 7)


def test_a_future_that_is_resolved_stays_so() -> None:
    future: PoolFuture[int] = PoolFuture()
    future.settle(7)
    future.note_begun()
    future.note_cancelled()
    assert (future.done(), future.running(), future.cancelled(), future.result(0)) == (True, False, False, 7)


def test_a_callback_of_a_cancelled_future_may_wait_for_a_thread_that_asks_for_it() -> None:
    future: PoolFuture[Any] = PoolFuture()
    seen: list[object] = []

    def ask_in_another_thread(_: object) -> None:
        thread = threading.Thread(
            target=lambda: seen.append(future.exception(0) if not future.cancelled() else "cancelled")
        )
        thread.start()
        thread.join(5)

    future.add_done_callback(ask_in_another_thread)
    future.note_cancelled()
    future.note_cancelled()
    assert seen == ["cancelled"]
    assert concurrent.futures.wait([future], timeout=5).done == {future}
