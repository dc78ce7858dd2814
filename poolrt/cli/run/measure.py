"""Repeated runs of one model: check every result, time every run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final, Protocol

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass

from .tensor_file import Array
from .tensors import compare

#: Time limit, in seconds, for the callback of a future that already has its result.
_CALLBACK_S: Final = 10.0


class Runnable(Protocol):
    """The part of a loaded model that is used here."""

    def submit(self, **inputs: Array) -> Future[dict[str, Array]]:
        """Start a run."""
        ...


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The allowed error of a result: ``atol + rtol * |expected|``."""

    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """The first run's results (copied out of shared memory), the time of each run in seconds, the wall time of all."""

    results: Mapping[str, Array]
    run_s: tuple[float, ...]
    wall_s: float
    max_abs_error: float


def repeat(
    model: Runnable,
    inputs: Mapping[str, Array],
    expected: Mapping[str, Array],
    tolerance: Tolerance,
    count: int,
    in_flight: int,
) -> Measurement:
    """Run a model ``count`` times, the first alone and then ``in_flight`` at a time, and compare each result.

    Raises JobFailed on the first result that differs too much, and the error of a run that fails. A run's time is from
    its submission to the moment its future has the result.
    """
    started = time.perf_counter()
    waiting: deque[_Running] = deque()
    run_s: list[float] = []
    largest = 0.0
    first: dict[str, Array] = {}
    submitted = 0
    while submitted < count or waiting:
        while submitted < count and len(waiting) < (in_flight if run_s else 1):
            waiting.append(_start(model, inputs))
            submitted += 1
        running = waiting.popleft()
        results = running.results.result()
        run_s.append(running.finished.result(_CALLBACK_S) - running.started)
        largest = max(largest, compare(results, expected, tolerance.rtol, tolerance.atol))
        if not first:
            first = {name: np.array(array) for name, array in results.items()}
        del results, running
    return Measurement(first, tuple(run_s), time.perf_counter() - started, largest)


@dataclass(frozen=True, slots=True)
class _Running:
    """A submitted run; ``finished`` gets the moment its results came, which is read later, after slower earlier runs."""

    results: Future[dict[str, Array]]
    started: float
    finished: Future[float]


def _start(model: Runnable, inputs: Mapping[str, Array]) -> _Running:
    finished: Future[float] = Future()
    started = time.perf_counter()
    results = model.submit(**inputs)
    results.add_done_callback(lambda _: finished.set_result(time.perf_counter()))
    return _Running(results, started, finished)
