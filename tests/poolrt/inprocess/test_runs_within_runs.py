"""A finalizer or a signal's handler runs an executor or a session in the middle of a run of its thread, and both are right."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

import poolrt.onnx as ort
from poolrt import DeviceContext, Executor, Graph
from poolrt.workers.engines.engine import Engine
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.native import NativePool
from tests.at_lines import at_each_line
from tests.workers.threadpools.kinds import region_loop

from .networks import Array, array

#: Seconds after which a run that waits for itself is ended.
BOUND_S = 60
FILES = ("inprocess/", "workers/plans/", "workers/streams/")


@pytest.fixture(autouse=True)
def bound() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError("a run waits for itself")

    timer = signal.setitimer(signal.ITIMER_REAL, 0)  # of the whole test, by pytest
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(BOUND_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def doubled_sums() -> Graph:
    """Return a graph of two steps with a tensor between them."""
    graph = Graph("within")
    x = graph.input("x", (3, 40))
    graph.output("y", graph.eltwise(graph.reduction(x, "sum", (0,), keep_dims=True), "linear", alpha=2.0))
    return graph


class Runs:
    """Runs of different sizes, checked at once and at the end: memory of one may not become another's."""

    def __init__(self, run: Callable[[Array], NDArray[Any]]) -> None:
        self._run = run
        self._kept: list[tuple[Array, NDArray[Any]]] = []

    def run(self, rows: int) -> None:
        x = np.round(array(rows, 40, seed=len(self._kept)) * 8)
        self._kept.append((x, self._run(x)))
        self.check(self._kept[-1:])

    def check(self, kept: list[tuple[Array, NDArray[Any]]] | None = None) -> None:
        for x, found in self._kept if kept is None else kept:
            np.testing.assert_array_equal(found, 2 * x.sum(0, keepdims=True))


@contextmanager
def stream_on(threads: int) -> Iterator[Stream | None]:
    if threads == 1:
        yield None
        return
    with NativePool(threads, kernels=region_loop()) as pool:
        attr = StreamAttr("cpu")
        attr.set_threadpool(pool)
        yield Stream(Engine("cpu"), attr)


@pytest.mark.parametrize(("shared", "threads"), [(False, 1), (True, 1), (True, 2)])
def test_an_executor_is_run_between_any_two_lines_of_a_run(
    cache: PrimitiveProvider, shared: bool, threads: int
) -> None:
    # So few instances that a new size evicts others.
    context = DeviceContext(4, shared=shared)
    with stream_on(threads) as stream:
        executor = Executor(doubled_sums(), stream=stream, context=context, cache=cache)
        runs = Runs(lambda x: executor.run(x=x)["y"])

        def interrupt() -> None:
            runs.run(2)
            runs.run(4)
            assert context.statistics().instances > 0

        def run_both() -> None:
            for rows in (2, 3, 3):
                runs.run(rows)

        run_both()
        assert at_each_line(run_both, interrupt, *FILES, step=11) > 50
        runs.check()


def test_tasks_of_a_pool_are_interrupted_too(cache: PrimitiveProvider) -> None:
    with stream_on(2) as stream:
        assert stream is not None
        executor = Executor(doubled_sums(), stream=stream, context=DeviceContext(shared=True), cache=cache)
        runs = Runs(lambda x: executor.run(x=x)["y"])

        lines: list[int] = []

        def interrupt_runs(*_: int) -> None:
            # Any thread of the pool may have the task, and only its own lines are seen.
            lines.append(at_each_line(lambda: runs.run(3), lambda: runs.run(3), *FILES, step=3))

        runs.run(3)
        stream.pool.parallel_for(1, interrupt_runs)
        assert lines[0] > 10
        runs.check()


def test_a_session_is_run_between_any_two_lines_of_a_run(cache: PrimitiveProvider) -> None:
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["s"]), helper.make_node("Add", ["s", "s"], ["y"])]
    ports = [helper.make_tensor_value_info(name, 1, ["n", 40]) for name in "xy"]
    axes = helper.make_tensor("axes", 7, [1], [0])
    model = helper.make_model(
        helper.make_graph(nodes, "g", ports[:1], ports[1:], [axes]), opset_imports=[helper.make_opsetid("", 17)]
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model, options, cache=cache)
    runs = Runs(lambda x: session.run(None, {"x": x})[0])

    def run_both() -> None:
        for rows in (3, 3):
            runs.run(rows)

    run_both()
    assert at_each_line(run_both, lambda: runs.run(3), *FILES, "onnx/", step=5) > 30
    runs.check()
