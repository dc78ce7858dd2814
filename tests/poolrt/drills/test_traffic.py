"""A drill of a pool reports a broken bound: these have faults that no pool could tolerate, and clients that see them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import numpy as np
import pytest

import poolrt
from poolrt.errors import WorkerLost

from ...drills.pools import check_traffic, pool_of
from ...drills.scale import SHORT
from ...drills.stage import Stage
from ...drills.traffic import Tally, Traffic


@pytest.fixture(scope="module")
def used() -> Iterator[poolrt.Pool]:
    """A pool of one worker."""
    with Stage("a drill", SHORT) as stage, pool_of(stage, workers=1) as pool:
        yield pool


def _checked(traffic: Traffic, kind: str) -> list[str]:
    with Stage("a drill", SHORT) as stage, traffic:
        until = time.monotonic() + 10
        while not traffic.tallies[kind].asked and time.monotonic() < until:
            time.sleep(0.005)
        check_traffic(stage, traffic)
    return stage.outcome.broken


def test_traffic_of_a_pool_without_a_fault_is_all_right(used: poolrt.Pool) -> None:
    assert _checked(Traffic(used, ("run", "futures", "map", "function")), "map") == []


def test_a_result_of_another_run_is_seen(used: poolrt.Pool) -> None:
    traffic = Traffic(used, ("run",))
    traffic._right = [np.zeros_like(right) for right in traffic._right]
    broken = _checked(traffic, "run")
    assert any("WrongResult: a run returned another result than before" in bound for bound in broken)


def test_refused_calls_are_seen(used: poolrt.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = Traffic(used, ("run",))

    def refuse(self: object) -> None:
        raise WorkerLost("product: 3 times in a row, worker processes exited while they started", "product", 0, 3)

    monkeypatch.setattr(Traffic, "_run", refuse)
    (bound,) = _checked(traffic, "run")
    assert bound.endswith("runs and functions got their results, less than 90%")
    assert bound.startswith("0 of ")


def test_a_report_keeps_all_answers_those_that_were_refused_too() -> None:
    tally = Tally(right=3, struck=1, bad=["one"], longest_s=0.5)
    tally.refused["WorkerLost: lost"] += 2
    again = Tally.of_report(json.loads(json.dumps(tally.report())))
    assert again == tally
    again.add(tally)
    assert (again.asked, again.refused.total()) == (14, 4)
