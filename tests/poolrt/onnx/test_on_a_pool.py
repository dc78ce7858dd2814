"""A session on a pool computes what one in this process does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import poolrt
import poolrt.onnx as ort

from .models import Array, model, rival, sums


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[poolrt.Pool]:
    home = tmp_path_factory.mktemp("home")
    settings: dict[str, Any] = {"home": str(home), "redis_url": f"unix://{home}/none.sock", "arena_bytes": 1 << 26}
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        yield pool


@pytest.mark.slow
def test_a_session_runs_on_a_pool(pool: poolrt.Pool) -> None:
    made, expected = ort.InferenceSession(sums(), pool=pool), rival(sums())
    for batch in (2, 5, 2):
        feed = {name: np.random.default_rng(batch).standard_normal((batch, 3), np.float32) for name in "xy"}
        for given, wanted in zip(made.run(["p", "s"], feed), expected.run(["p", "s"], feed), strict=True):
            np.testing.assert_array_equal(given, wanted, strict=True)
    assert pool.stats()["arena"]["used"] > 0


@pytest.mark.slow
def test_inputs_that_shapes_depend_on_and_bound_memory_work_on_a_pool(pool: poolrt.Pool) -> None:
    nodes = [helper.make_node("Add", ["x", "x"], ["d"]), helper.make_node("Reshape", ["d", "shape"], ["y"])]
    inputs = {"x": (TensorProto.FLOAT, ["n"]), "shape": (TensorProto.INT64, [2])}
    source = model(nodes, inputs, {"y": (TensorProto.FLOAT, None)})
    made, expected = ort.InferenceSession(source, pool=pool), rival(source)
    x = np.random.default_rng().standard_normal(6, np.float32)
    for shape in ((2, 3), (3, 2), (2, 3)):
        feed: dict[str, Array] = {"x": x, "shape": np.array(shape, np.int64)}
        (wanted,) = expected.run(None, feed)
        np.testing.assert_array_equal(made.run(None, feed)[0], wanted, strict=True)
        result = ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32)
        binding = made.io_binding()
        for name, array in feed.items():
            binding.bind_cpu_input(name, array)
        binding.bind_ortvalue_output("y", result)
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(result.numpy(), wanted, strict=True)


@pytest.mark.slow
def test_a_pool_loads_a_model_for_several_sets_of_shapes(pool: poolrt.Pool) -> None:
    models = pool.load(sums(), shapes=[{"x": (batch, 3), "y": (batch, 3)} for batch in (4, 6)])
    for loaded, batch in zip(models, (4, 6), strict=True):
        ones = np.ones((batch, 3), np.float32)
        np.testing.assert_array_equal(loaded.run(x=ones, y=ones)["s"], 2 * ones)
    with pytest.raises(TypeError, match="batch and shapes are for ONNX models"):
        pool.load(poolrt.Graph("mine"), shapes=[{"x": (4, 3)}])


@pytest.mark.slow
def test_a_pool_loads_a_model_with_inputs_that_it_must_know(pool: poolrt.Pool) -> None:
    nodes = [helper.make_node("Add", ["x", "x"], ["d"]), helper.make_node("Reshape", ["d", "shape"], ["y"])]
    inputs = {"x": (TensorProto.FLOAT, ["n"]), "shape": (TensorProto.INT64, [2])}
    source = model(nodes, inputs, {"y": (TensorProto.FLOAT, None)})
    one = pool.load(source, shapes={"x": (6,)}, values={"shape": [2, 3]})
    several = pool.load(source, shapes=[{"x": (6,)}, {"x": (8,)}], values={"shape": [2, -1]})
    for loaded, columns in zip((one, *several), (3, 3, 4), strict=True):
        x = np.arange(2 * columns, dtype=np.float32)
        np.testing.assert_array_equal(loaded.run(x=x)["y"], 2 * x.reshape(2, columns))
    with pytest.raises(TypeError, match="batch and shapes are for ONNX models"):
        pool.load(poolrt.Graph("mine"), values={"shape": [2, 3]})


@pytest.mark.slow
def test_models_beyond_the_bound_of_bytes_are_unloaded(pool: poolrt.Pool) -> None:
    made = ort.InferenceSession(sums(), pool=pool, plan_bytes="1 MiB")
    used = []
    for batch in (20_000, 20_001, 20_002, 20_003):
        feed = {"x": np.ones((batch, 3), np.float32), "y": np.ones((batch, 3), np.float32)}
        np.testing.assert_array_equal(made.run(["s"], feed)[0], np.full((batch, 3), 2, np.float32))
        used.append(pool.stats()["arena"]["used"])
    assert len(made._plans._models) == 1  # type: ignore[attr-defined]
    assert used[3] <= used[1] + 4096
