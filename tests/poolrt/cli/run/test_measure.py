"""Repeated runs: how many at a time, their times, and the check of each result."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from poolrt.cli.report import JobFailed
from poolrt.cli.run.measure import Tolerance, repeat
from poolrt.cli.run.tensor_file import Array

TOLERANCE = Tolerance(rtol=0.0, atol=0.0)


class Doubling:
    """Doubles its input on threads; from run ``wrong_from`` on it is off by one. Counts the runs under way."""

    def __init__(self, executor: ThreadPoolExecutor, wrong_from: int = 10**9) -> None:
        self._executor = executor
        self._wrong_from = wrong_from
        self._lock = threading.Lock()
        self._under_way = 0
        self.most = 0
        self.runs = 0

    def submit(self, **inputs: Array) -> Future[dict[str, Array]]:
        with self._lock:
            self._under_way += 1
            self.most = max(self.most, self._under_way)
            run, self.runs = self.runs, self.runs + 1
        return self._executor.submit(self._run, inputs["x"], run)

    def _run(self, x: Array, run: int) -> dict[str, Array]:
        y = 2 * x + (run >= self._wrong_from)
        # Before anybody can have the result, and start another run.
        with self._lock:
            self._under_way -= 1
        return {"y": y}


@pytest.mark.parametrize(("count", "in_flight"), [(1, 1), (1, 4), (20, 1), (20, 3)])
def test_all_runs_are_timed_and_at_most_the_given_number_is_in_flight(count: int, in_flight: int) -> None:
    x = np.arange(4.0)
    with ThreadPoolExecutor(4) as executor:
        model = Doubling(executor)
        measured = repeat(model, {"x": x}, {"y": 2 * x}, TOLERANCE, count, in_flight)
    assert model.runs == len(measured.run_s) == count
    assert model.most <= in_flight
    assert all(0 < seconds <= measured.wall_s for seconds in measured.run_s)
    assert measured.max_abs_error == 0
    np.testing.assert_array_equal(measured.results["y"], 2 * x)


def test_a_wrong_result_of_a_late_run_fails_too() -> None:
    x = np.arange(4.0)
    with ThreadPoolExecutor(2) as executor, pytest.raises(JobFailed, match="output y differs"):
        repeat(Doubling(executor, wrong_from=7), {"x": x}, {"y": 2 * x}, TOLERANCE, 8, 2)
