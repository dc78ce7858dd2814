"""A session runs a model on inputs of any sizes: one plan for each set of sizes, with one set of weights."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import poolrt.onnx as ort
from poolrt.inprocess.compiled_graph import CompiledGraph
from poolrt.workers.execution.memory import Memory
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.onnx.transformers import bert

from .models import model, rival, session, sums


def instances(made: ort.InferenceSession, kind: type) -> list[Any]:
    return [each for each in made._plans.context.instances().values() if isinstance(each, kind)]  # type: ignore[attr-defined]


def feed_of(random: np.random.Generator, batch: int, length: int) -> dict[str, Any]:
    mask = (random.random((batch, length)) < 0.8).astype(np.int64)
    mask[:, 0] = 1
    return {"ids": random.integers(0, 50, (batch, length)), "mask": mask}


def test_plans_of_different_sizes_share_the_weights(cache: PrimitiveProvider) -> None:
    made, expected = session(sums(), cache), rival(sums())
    for batch in (1, 3, 2, 3, 1):
        feed = {name: np.random.default_rng(batch).standard_normal((batch, 3), np.float32) for name in "xy"}
        for given, wanted in zip(made.run(None, feed), expected.run(None, feed), strict=True):
            np.testing.assert_array_equal(given, wanted, strict=True)
    assert len(instances(made, CompiledGraph)) == 3
    assert len(instances(made, Memory)) == 1


def test_results_of_constant_nodes_are_weights_that_plans_share(cache: PrimitiveProvider) -> None:
    random, kind = np.random.default_rng(), TensorProto.FLOAT
    weights = random.standard_normal((5, 7), np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(weights)),
        helper.make_node("Constant", [], ["z"], value=numpy_helper.from_array(weights[:2])),
    ]
    ports = {"x": (kind, ["batch", 5])}, {"y": (kind, ["batch", 7]), "z": (kind, [2, 7])}
    made = session(model(nodes, *ports), cache)
    counts = []
    for batch in (1, 3, 2):
        x = random.standard_normal((batch, 5), np.float32)
        y, z = made.run(None, {"x": x})
        np.testing.assert_allclose(y, x.astype(np.float64) @ weights, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(z, weights[:2], strict=True)
        counts.append(len(instances(made, Memory)))
    assert len({*counts[1:]}) == 1  # one row has a layout of its own
    nodes[1].attribute[0].t.raw_data = b"short"
    with pytest.raises(ort.InvalidGraph, match="tensor"):
        session(model(nodes, *ports), cache).run(None, {"x": np.zeros((2, 5), np.float32)})


@pytest.mark.slow
def test_weights_that_the_model_rearranges_are_in_memory_once(cache: PrimitiveProvider) -> None:
    random, kind = np.random.default_rng(), TensorProto.FLOAT
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Transpose", ["b"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["p", "turned"], ["q"]),
        helper.make_node("Mul", ["c", "half"], ["scaled"]),
        helper.make_node("MatMul", ["q", "scaled"], ["y"]),
    ]
    weights = {name: random.standard_normal((32, 32), np.float32) for name in "abc"}
    port = (kind, ["batch", "length", 32])
    made = session(model(nodes, {"x": port}, {"y": port}, {**weights, "half": np.array([0.5], np.float32)}), cache)
    counts = []
    for batch, length in ((1, 1), (2, 3), (5, 1), (3, 40), (1, 7)):
        x = random.standard_normal((batch, length, 32), np.float32)
        a, b, c = (each.astype(np.float64) for each in weights.values())
        expected = x @ a @ b.T @ (c / 2)
        np.testing.assert_allclose(made.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-3)
        counts.append(len([each for each in instances(made, Memory) if each.desc.nbytes >= 4 * 32 * 32]))
    assert counts == [3] * 5


def test_threads_that_need_the_same_new_plan_wait_for_one_that_makes_it(
    cache: PrimitiveProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, count = session(sums(), cache), 4
    together, imports = threading.Barrier(count), []
    graph = made._model.graph

    def counted(*arguments: Any) -> Any:
        imports.append(threading.get_ident())
        return graph(*arguments)

    monkeypatch.setattr(made._model, "graph", counted)

    def run(number: int) -> Any:
        feed = {"x": np.full((7, 3), number, np.float32), "y": np.ones((7, 3), np.float32)}
        together.wait(60)
        return made.run(["s"], feed)[0]

    with ThreadPoolExecutor(count) as threads:
        for number, found in enumerate(threads.map(run, range(count))):
            np.testing.assert_array_equal(found, np.full((7, 3), number + 1, np.float32))
    assert len(imports) == 1


def test_plans_can_be_made_ahead_of_runs(cache: PrimitiveProvider) -> None:
    made = session(sums(), cache)
    made.prepare([{"x": (batch, 3), "y": (batch, 3)} for batch in (1, 2)])
    assert len(instances(made, CompiledGraph)) == 2
    np.testing.assert_array_equal(
        made.run(["s"], dict.fromkeys("xy", np.ones((2, 3), np.float32)))[0], np.full((2, 3), 2)
    )
    assert len(instances(made, CompiledGraph)) == 2
    with pytest.raises(ort.InvalidArgument, match="shapes: expect one for each of x, y, got x"):
        made.prepare({"x": (1, 3)})
    with pytest.raises(ort.InvalidArgument, match="'batch' has two sizes: 1 in input x"):
        made.prepare({"y": (2, 3), "x": (1, 3)})


def test_later_changes_of_a_model_are_in_no_plan(cache: PrimitiveProvider) -> None:
    source = sums()
    made = session(source, cache)
    source.graph.node[0].op_type = "Sub"
    ones = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(made.run(["s"], {"x": ones, "y": ones})[0], 2 * ones)


def test_a_session_that_is_dropped_releases_its_plans(cache: PrimitiveProvider) -> None:
    made = session(sums(), cache)
    made.run(None, dict.fromkeys("xy", np.ones((2, 3), np.float32)))
    plans = [weakref.ref(each) for each in instances(made, CompiledGraph)]
    del made
    assert [plan() for plan in plans] == [None]


def test_an_input_that_sizes_depend_on_is_known_in_its_plan(cache: PrimitiveProvider) -> None:
    kind = TensorProto.FLOAT
    nodes = [helper.make_node("Add", ["x", "x"], ["d"]), helper.make_node("Reshape", ["d", "shape"], ["y"])]
    inputs = {"x": (kind, ["n"]), "shape": (TensorProto.INT64, [2])}
    made = model(nodes, inputs, {"y": (kind, None)})
    found, expected = session(made, cache), rival(made)
    for shape in ((2, 3), (3, 2), (1, -1), (2, 3)):
        feed = {"x": np.arange(6, dtype=np.float32), "shape": np.array(shape, np.int64)}
        np.testing.assert_array_equal(found.run(None, feed)[0], expected.run(None, feed)[0], strict=True)
    with pytest.raises(ort.InvalidGraph, match="Reshape"):
        found.run(None, {"x": np.arange(6, dtype=np.float32), "shape": np.array([4, 4], np.int64)})


def test_outputs_are_cut_to_what_a_run_counts(cache: PrimitiveProvider) -> None:
    kind = TensorProto.FLOAT
    nodes = [
        helper.make_node("Cast", ["n"], ["k"], to=TensorProto.INT64),
        helper.make_node("TopK", ["x", "k"], ["y", "places"]),
    ]
    made = model(nodes, {"x": (kind, ["size"]), "n": (kind, [1])}, {"y": (kind, ["m"])})
    found, expected = session(made, cache), rival(made)
    for size, count in ((70, 3), (70, 70), (9, 8)):
        feed = {"x": np.random.default_rng(size).random(size, np.float32), "n": np.array([count], np.float32)}
        np.testing.assert_array_equal(found.run(None, feed)[0], expected.run(None, feed)[0], strict=True)


@pytest.mark.slow
def test_an_encoder_of_text_is_right_for_random_sizes_within_its_bound_of_bytes(cache: PrimitiveProvider) -> None:
    made = bert("sequence")
    bound = 3 << 20
    found, expected = session(made, cache, plan_bytes=bound), rival(made)
    random = np.random.default_rng()
    context = found._plans.context  # type: ignore[attr-defined]
    for _ in range(15):
        feed = feed_of(random, int(random.integers(1, 9)), int(random.integers(1, 33)))
        (given,), (wanted,) = found.run(None, feed), expected.run(None, feed)
        np.testing.assert_allclose(given, wanted, rtol=1e-4, atol=1e-5, err_msg=str(feed["ids"].shape))
        assert context.nbytes <= bound
    assert context.statistics().evicted > 0
