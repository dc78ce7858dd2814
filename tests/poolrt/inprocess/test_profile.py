"""The time of each step of a graph: all steps, their work counted by hand, and rates below those of the machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.inprocess import profile
from poolrt.inprocess.profile import profile_graph
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.threadpools.native import NativePool
from tests.workers.compiled import region_loop


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the peak by the graph's own primitives, so that these tests compile few."""
    monkeypatch.setattr(profile, "_MOVED", 4 * 64**2)
    monkeypatch.setattr(profile, "_PRODUCT", 64)


def _graph(engine: str = "cpu") -> poolrt.Graph:
    g = poolrt.Graph("profiled", engine)
    product = g.matmul(g.input("x", (64, 64)), np.ones((64, 64), np.float32), name="product")
    g.output("y", g.eltwise(g.reshape(product, (64**2,)), "relu", name="last"))
    return g


def _inputs() -> dict[str, Any]:
    return {"x": np.random.default_rng().standard_normal((64, 64)).astype(np.float32)}


@pytest.mark.parametrize("threads", [1, 2])
def test_each_step_has_its_time_work_and_rate(threads: int, cache: PrimitiveProvider) -> None:
    with NativePool(threads, kernels=region_loop("loop", "submit", "nest", "clock")) as pool:
        found = profile_graph(_graph(), _inputs(), runs=3, threadpool=pool, cache=cache)
    assert (found.threads, found.runs) == (threads, 3)
    assert {each.step.name for each in found.steps} == {"product", "last"}
    assert [each.seconds for each in found.steps] == sorted((each.seconds for each in found.steps), reverse=True)
    assert all(each.seconds > 0 for each in found.steps)
    assert sum(each.seconds for each in found.steps) == pytest.approx(found.seconds)
    assert sum(each.share for each in found.steps) == pytest.approx(1)
    product, last = sorted(found.steps, key=lambda each: -each.operations)
    assert (product.operations, product.nbytes) == (2 * 64**3, 3 * 4 * 64**2)
    assert (last.operations, last.nbytes) == (0, 2 * 4 * 64**2)
    assert product.rate == f"{2 * 64**3 / product.seconds / 1e9:.1f} GFLOP/s"
    assert last.rate == f"{2 * 4 * 64**2 / last.seconds / 1e9:.1f} GB/s"
    assert product.of_peak == pytest.approx(2 * 64**3 / product.seconds / found.peak.operations)
    assert last.of_peak == pytest.approx(2 * 4 * 64**2 / last.seconds / found.peak.nbytes)
    assert [str(node) for node in product.nodes] == ["product (matmul)"]


def test_times_are_those_of_executions_and_results_stay_right(cache: PrimitiveProvider) -> None:
    # Given an executor that has timed its steps
    executor, inputs = poolrt.Executor(_graph(), cache=cache), _inputs()
    lowered, times = executor.time_steps(4, **inputs)
    assert [len(each) for each in times] == [4] * len(lowered.plan.steps)
    # Then its runs still give the result
    product = inputs["x"].astype(np.float64) @ np.ones((64, 64))
    np.testing.assert_allclose(executor.run(**inputs)["y"], np.maximum(product, 0).reshape(-1), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_steps_of_a_device_have_times_and_no_share_of_the_processors_peak(cache: PrimitiveProvider) -> None:
    found = profile_graph(_graph("opencl"), _inputs(), runs=2, cache=cache)
    assert {each.step.engine for each in found.steps} == {"opencl:0"}
    assert all(each.seconds > 0 and each.of_peak is None for each in found.steps)


def test_what_is_no_graph_and_less_than_one_run_are_refused() -> None:
    with pytest.raises(ValueError, match="runs: expect at least 1, got 0"):
        profile_graph(_graph(), {}, runs=0)
    with pytest.raises(TypeError, match=r"graph: expect a Graph, got str"):
        profile_graph("model.onnx", {})  # type: ignore[arg-type]
