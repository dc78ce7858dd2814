"""Runs that are split over workers: as right as whole ones, also with errors, timeouts and lost workers."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import poolrt
from poolrt.errors import PoolClosed
from poolrt.runs.split_model import SplitModel

from .prepared import places_of
from .processes import BOUND_S, wait_until, workers_of


def _graph(samples: int) -> poolrt.Graph:
    """Return a small network: x (samples, 3, 6, 6), a scale for all -> y (samples, 5) and the scale, doubled."""
    rng = np.random.default_rng(3)
    g = poolrt.Graph("network")
    x, scale = g.input("x", (samples, 3, 6, 6)), g.input("scale", (1, 4))
    y = g.convolution(x, rng.standard_normal((4, 3, 3, 3)).astype(np.float32), padding=1)
    y = g.reduction(g.eltwise(y, "relu"), "mean", (2, 3), keep_dims=False)
    y = g.matmul(g.binary(y, scale, "mul"), rng.standard_normal((4, 5)).astype(np.float32))
    g.output("y", y)
    g.output("doubled", g.binary(scale, scale, "add"))
    return g


def _inputs(samples: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng([seed, samples])
    return {
        "x": rng.standard_normal((samples, 3, 6, 6)).astype(np.float32),
        "scale": rng.standard_normal((1, 4)).astype(np.float32),
    }


@pytest.mark.parametrize("samples", [1, 2, 7, 16])
def test_split_runs_equal_whole_ones(pool: poolrt.Pool, samples: int) -> None:
    whole = pool.load(_graph(samples))
    split = pool.load(_graph(samples), split_batch=True)
    assert isinstance(split, SplitModel) == (samples > 1)
    assert [spec.shape for spec in split.inputs] == [spec.shape for spec in whole.inputs]
    assert split.inputs == whole.inputs
    assert split.outputs == whole.outputs
    many = [_inputs(samples, seed) for seed in range(20)]
    expected = [whole.run(**inputs) for inputs in many]
    futures = [split.submit(**inputs) for inputs in many]
    for found in ([split.run(**each) for each in many], [f.result(BOUND_S) for f in futures], split.map(many, 3)):
        for ours, theirs in zip(found, expected, strict=True):
            assert {*ours} == {"y", "doubled"}
            for name, array in theirs.items():
                np.testing.assert_allclose(ours[name], array, rtol=1e-5, atol=1e-6)
    assert split.report["primitives"]["total"] >= whole.report["primitives"]["total"] > 0
    assert split.plan().steps
    split.close()
    with pytest.raises(PoolClosed, match="closed"):
        split.run(**many[0])


def test_both_workers_run_a_part_of_each_run(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        model = pool.load(_graph(6), split_batch=True)
        expected = [model.run(**_inputs(6, seed)) for seed in range(10)]
        rings, number = pool._session.link.client.rings._rings, model._loaded.number

        def both_take_it() -> bool:
            model.run(**_inputs(6))
            taken = sum(number in ring.models for ring in [*rings.values()])
            return taken == 2 and all(len(places_of(part)) == 2 for part in set(model._models))  # type: ignore[attr-defined]

        wait_until(both_take_it, "both workers take runs of the model")
        # As in a row of short runs, of which a model that is not split gives several to one worker.
        for part in set(model._models):  # type: ignore[attr-defined]
            pace = part._loaded.pace
            pace.at_once, pace.looked = 0, time.perf_counter_ns() + 10**10
        stopped = workers_of(pool)
        before = {ring: ring._ring.submitted for ring in rings.values()}
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            futures = []
            for seed in range(10):
                futures.append(model.submit(**_inputs(6, seed)))
                assert [ring._ring.submitted - before[ring] for ring in rings.values()] == [seed + 1] * 2
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        for future, one in zip(futures, expected, strict=True):
            np.testing.assert_array_equal(future.result(BOUND_S)["y"], one["y"])


def test_a_model_file_with_an_open_batch_is_split(pool: poolrt.Pool) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 3))
    proto = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], axis=1)], "soft", [x], [y])
    made = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    model = pool.load(made, batch=5, split_batch=True)
    given = np.random.default_rng().standard_normal((5, 3)).astype(np.float32)
    exact = np.exp(given.astype(np.float64))
    np.testing.assert_allclose(model.run(x=given)["y"], exact / exact.sum(1, keepdims=True), rtol=1e-5)


def test_wrong_inputs_are_refused_before_a_part_begins(pool: poolrt.Pool) -> None:
    model = pool.load(_graph(4), split_batch=True)
    inputs = _inputs(4)
    with pytest.raises(ValueError, match=r"must be of shape \(4, 3, 6, 6\), got \(3, 3, 6, 6\)"):
        model.run(**{**inputs, "x": inputs["x"][:3]})
    with pytest.raises(TypeError, match="by name"):
        model.run(inputs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="in_flight must be at least 1"):
        next(model.map([inputs], in_flight=0))
    assert {*model.run(**inputs)} == {"y", "doubled"}


def test_a_graph_that_mixes_samples_is_refused_when_it_is_loaded(pool: poolrt.Pool) -> None:
    g = poolrt.Graph("mixed")
    g.output("y", g.softmax(g.input("x", (4, 3)), 0))
    with pytest.raises(poolrt.GraphError, match="split_batch: softmax 'softmax_0': it works along the batch"):
        pool.load(g, split_batch=True)


def test_a_timeout_and_a_lost_worker_harm_one_run_at_most(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        model = pool.load(_graph(6), split_batch=True)
        expected = model.run(**_inputs(6))["y"]
        stopped = workers_of(pool)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match=r"a run of model network has not ended within 0.3 s"):
            model.run(timeout=0.3, **_inputs(6))
        assert time.monotonic() - begun < BOUND_S
        future = model.submit(**_inputs(6))
        os.kill(stopped[0], signal.SIGKILL)
        os.kill(stopped[1], signal.SIGCONT)
        np.testing.assert_allclose(future.result(BOUND_S)["y"], expected, rtol=1e-5, atol=1e-6)
        cancelled = model.submit(**_inputs(6))
        cancelled.cancel()
        np.testing.assert_allclose(model.run(**_inputs(6))["y"], expected, rtol=1e-5, atol=1e-6)
        del expected, future, cancelled
        wait_until(lambda: pool.stats()["queue"]["in_flight"] == 0, "no run is left")
