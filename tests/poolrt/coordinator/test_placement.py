"""Placement of functions: an idle worker that has the function, then one that has called any, then the first."""

from __future__ import annotations

import pytest

from poolrt.coordinator.placement import choose_for_function
from poolrt.coordinator.worker import Worker

WORKERS = [
    Worker(1, ready=True),
    Worker(2, ready=True, calls=1, applied=True),
    Worker(3, ready=True, calls=1, functions={7}),
    Worker(4, functions={8}),
    Worker(5, ready=True, calls=1, functions={8}, doomed=True),
]


@pytest.mark.parametrize(
    ("function", "runs_wait", "expected"), [(7, False, 3), (0, False, 2), (8, False, 2), (8, True, 3), (7, True, 3)]
)
def test_a_function_goes_to_a_worker_that_has_it_or_is_warm(function: int, runs_wait: bool, expected: int) -> None:
    chosen = choose_for_function(WORKERS, function, runs_wait)
    assert chosen is not None
    assert chosen.number == expected


def test_a_function_waits_while_no_worker_fits() -> None:
    assert choose_for_function(WORKERS[3:], 8, False) is None
    assert choose_for_function(WORKERS[1:2], 0, True) is None
