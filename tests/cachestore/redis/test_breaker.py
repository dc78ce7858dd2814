"""The circuit breaker: open after a failure, one probe at a time, closed by success."""

from __future__ import annotations

import time

import pytest

from poolrt.cachestore.redis import breaker as room
from poolrt.cachestore.redis.breaker import CircuitBreaker


class Clock:
    """A clock that moves only when it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the breaker's clock."""
    clock = Clock()
    monkeypatch.setattr(room, "time", type("time", (), {"monotonic": staticmethod(clock)}))
    return clock


def test_it_lets_everything_through_until_a_failure(clock: Clock) -> None:
    breaker = CircuitBreaker()
    assert all(breaker.allows() for _ in range(5))
    breaker.failed("gone")
    assert not breaker.allows()
    assert breaker.reason == "gone"


def test_after_a_pause_one_caller_may_probe(clock: Clock) -> None:
    breaker = CircuitBreaker()
    breaker.failed("gone")
    clock.now += 1.0
    assert [breaker.allows() for _ in range(3)] == [True, False, False]


def test_success_closes_it(clock: Clock) -> None:
    breaker = CircuitBreaker()
    breaker.failed("gone")
    clock.now += 1.0
    assert breaker.allows()
    breaker.succeeded()
    assert all(breaker.allows() for _ in range(3))
    assert breaker.reason == ""


def test_a_probe_that_never_reports_does_not_keep_it_open(clock: Clock) -> None:
    breaker = CircuitBreaker()
    breaker.failed("gone")
    clock.now += 1.0
    assert breaker.allows()
    clock.now += 2.0
    assert breaker.allows()


def test_pauses_grow_up_to_half_a_minute(clock: Clock) -> None:
    breaker = CircuitBreaker()
    pauses = []
    for _ in range(14):
        breaker.failed("gone")
        begin = clock.now
        while not breaker.allows():
            clock.now += 0.01
        pauses.append(clock.now - begin)
    assert pauses[0] < 0.15
    assert pauses[6] > 4 * pauses[0]
    assert 14.9 < pauses[-1] < 30.1


def test_threads_that_fail_together_count_once(clock: Clock) -> None:
    breaker = CircuitBreaker()
    for _ in range(8):
        breaker.failed("gone")
    clock.now += 0.11
    assert breaker.allows()
    for _ in range(8):
        breaker.failed("gone")
    clock.now += 0.21
    assert breaker.allows()


def test_real_time_opens_it_again() -> None:
    breaker = CircuitBreaker()
    breaker.failed("gone")
    deadline = time.monotonic() + 5.0
    while not breaker.allows():
        assert time.monotonic() < deadline
        time.sleep(0.005)
