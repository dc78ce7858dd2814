"""An exception of a signal handler, at any place of a run, leaves the executor as it was."""

from __future__ import annotations

import signal
import time

import numpy as np

from poolrt import Executor, Graph
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.interrupting import interrupted_by_timer

from .networks import array

SECONDS = 0.3


class Interrupted(BaseException):
    """What the handler raises, as Python's own one raises KeyboardInterrupt."""


def test_runs_that_signals_interrupt_leave_later_ones_right(cache: PrimitiveProvider) -> None:
    graph = Graph("sum of doubled and given")
    x, y = graph.input("x", (3, 50)), graph.input("y", (3, 50))
    graph.output("sum", graph.binary(graph.eltwise(x, "linear", alpha=2.0), y, "add"))
    graph.output("doubled", graph.eltwise(x, "linear", alpha=2.0))
    executor = Executor(graph, cache=cache)
    given = [(array(3, 50, seed=2 * n), array(3, 50, seed=2 * n + 1)) for n in range(8)]
    executor.run(x=given[0][0], y=given[0][1])
    interrupted = ended = 0
    with interrupted_by_timer(Interrupted):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or not interrupted:
            x_given, y_given = given[(interrupted + ended) % len(given)]
            found = None
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (20 + 7 * (interrupted + ended) % 200))
                while True:
                    found = executor.run(x=x_given, y=y_given)
            except Interrupted:
                interrupted += 1
            if found is not None:
                ended += 1
                np.testing.assert_allclose(found["doubled"], 2 * x_given)
                np.testing.assert_allclose(found["sum"], 2 * x_given + y_given, rtol=1e-6)
    again = executor.run(x=given[3][0], y=given[3][1])
    np.testing.assert_allclose(again["sum"], 2 * given[3][0] + given[3][1], rtol=1e-6)
    statistics = executor.context.statistics()
    assert (statistics.created, statistics.evicted) == (2, 0)
