"""Single-flight: one thread leads, the others get its result or an equal error, or lead when it was interrupted."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from poolrt.cachestore import CreationFailed, CreationTimeout, StoreError
from poolrt.cachestore.single_flight import Abandoned, SharedFuture, SingleFlight
from tests.at_lines import at_each_line


def joined_while(create: object, shared: type[StoreError] = StoreError) -> tuple[object, object]:
    """Return what a leader and a thread that waits for it get: a value or an error."""
    flights: SingleFlight[str, object] = SingleFlight()
    own: SharedFuture[object] = SharedFuture()
    waiting = threading.Event()

    def work() -> object:
        assert waiting.wait(10)
        if isinstance(create, BaseException):
            raise create
        return create

    def lead() -> object:
        try:
            return flights.lead("key", own, work, shared)
        except BaseException as error:  # noqa: BLE001 - compared by the test
            return error

    def wait() -> object:
        try:
            future = flights.join("key", SharedFuture())
            assert future is own
            waiting.set()
            return future.result(10)
        except Exception as error:  # noqa: BLE001 - compared by the test
            return error

    joined = threading.Event()

    def join_and_lead() -> object:
        assert flights.join("key", own) is own
        joined.set()
        return lead()

    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(join_and_lead)
        assert joined.wait(10)
        waiter = pool.submit(wait)
        result = leader.result(10), waiter.result(10)
    later: SharedFuture[object] = SharedFuture()
    assert flights.join("key", later) is later, "nothing is kept"
    return result


def test_a_waiting_thread_gets_the_leaders_result() -> None:
    value = object()
    assert joined_while(value) == (value, value)


def test_a_waiting_thread_gets_an_equal_error_with_its_cause() -> None:
    failure = CreationFailed("ValueError", "broken", "log")
    failure.__cause__ = ValueError("broken")
    leader, waiter = joined_while(failure)
    assert leader is failure
    assert isinstance(waiter, CreationFailed)
    assert waiter is not failure
    assert (waiter.type, waiter.message, waiter.log) == ("ValueError", "broken", "log")
    assert waiter.__cause__ is failure.__cause__


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CreationTimeout("d", 1.0), ValueError("ours")], ids=repr)
def test_a_leader_with_an_error_of_its_own_hands_over(error: BaseException) -> None:
    leader, waiter = joined_while(error, CreationFailed)
    assert leader is error
    assert isinstance(waiter, Abandoned)


def test_a_wait_ends_after_its_timeout() -> None:
    future: SharedFuture[int] = SharedFuture()
    with ThreadPoolExecutor(1) as pool, pytest.raises(TimeoutError):
        pool.submit(future.result, -1.0).result(10)


def test_a_leader_does_not_wait_for_itself() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    own: SharedFuture[int] = SharedFuture()
    flights.join("key", own)
    with pytest.raises(StoreError, match="asked for that same entry"):
        flights.lead("key", own, lambda: flights.join("key", SharedFuture()).result(10))


def test_a_future_whose_leader_was_interrupted_before_it_led_is_replaced() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    own: SharedFuture[int] = SharedFuture()
    flights.join("key", own)
    waiting = flights.join("key", SharedFuture())
    own.abandon()
    with pytest.raises(Abandoned):
        waiting.result(10)
    later: SharedFuture[int] = SharedFuture()
    assert flights.join("key", later) is later
    assert flights.lead("key", later, lambda: 7) == 7
    later.abandon()
    assert later.result(0) == 7


def test_a_creation_may_be_interrupted_by_another_of_its_thread() -> None:
    flights: SingleFlight[str, int] = SingleFlight()

    def create(key: str) -> None:
        own: SharedFuture[int] = SharedFuture()
        future = flights.join(key, own)
        assert (flights.lead(key, own, lambda: 3) if future is own else future.result_if_done()) in (3, None)

    def create_two(first: str) -> None:
        create(first)
        create("outer")

    work, interrupt = partial(create_two, "outer"), partial(create_two, "inner")
    assert at_each_line(work, interrupt, "cachestore/single_flight") > 10
