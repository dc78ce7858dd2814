"""The watchdog: what takes too long is noticed, never too early, and a clock that jumps tells nothing."""

from __future__ import annotations

from poolrt.coordinator.watchdog import UnderWay, Watchdog


def _looks(dog: Watchdog, start: float, seconds: int, *under_way: UnderWay) -> list[UnderWay]:
    """Look once a second and return what was overdue at the last look."""
    overdue: list[UnderWay] = []
    for second in range(seconds + 1):
        overdue = dog.check(start + second, under_way)
    return overdue


def test_what_is_under_way_for_its_limit_is_overdue_and_not_a_second_earlier() -> None:
    slow, quick = UnderWay(1, "run 7", 10.0), UnderWay(2, "run 8", 20.0)
    assert _looks(Watchdog(), 1000.0, 9, slow, quick) == []
    assert _looks(Watchdog(), 1000.0, 10, slow, quick) == [slow]
    assert _looks(Watchdog(), 1000.0, 20, slow, quick) == [slow, quick]


def test_another_thing_begins_anew() -> None:
    dog = Watchdog()
    assert _looks(dog, 0.0, 9, UnderWay(1, "run 7", 10.0)) == []
    assert _looks(dog, 10.0, 9, UnderWay(1, "run 8", 10.0)) == []
    assert _looks(dog, 20.0, 1) == []
    assert _looks(dog, 22.0, 9, UnderWay(1, "run 8", 10.0)) == []


def test_a_limit_of_zero_is_none() -> None:
    assert _looks(Watchdog(), 0.0, 100, UnderWay(1, "run 7", 0.0)) == []


def test_time_without_a_look_counts_little() -> None:
    """A machine that was asleep, or a coordinator that was stopped, has let nothing else get on either."""
    dog = Watchdog()
    item = UnderWay(1, "run 7", 60.0)
    assert dog.check(0.0, [item]) == []
    assert dog.check(3600.0, [item]) == []
    assert dog.check(3601.0, [item]) == []
