"""TfIdfVectorizer: n-grams of integers are found in tables, and counted as ONNX's definition says."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from poolrt import Executor, ModelError, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.interpreter import run_wire

Array = NDArray[Any]
#: Items that are close to one another, far apart, and at the ends of int64.
ITEMS = {
    "near": np.arange(-20, 20),
    "far": np.arange(40) * 10**15 - 7,
    "ends": np.array([-(2**63), -(2**63) + 1, -1, 0, 5, 2**63 - 2, 2**63 - 1]),
    "one": np.array([3]),
}


def model_of(
    dims: tuple[int, ...], pool: list[list[tuple[int, ...]]], columns: list[int], dtype: int, **how: Any
) -> bytes:
    """Return a model with n-grams of each length, which begins at 1."""
    flat = [item for grams in pool for gram in grams for item in gram]
    starts = np.cumsum([0, *(len(grams) * size for size, grams in enumerate(pool, 1))])[: len(pool)]
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], "node", pool_int64s=flat, ngram_counts=starts.tolist(),
                            ngram_indexes=columns, **how)  # fmt: skip
    source = helper.make_tensor_value_info("x", dtype, dims)
    graph = helper.make_graph([node], "single", [source], [onnx.ValueInfoProto(name="y")])
    made: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    return made


def check(model: bytes, x: Array, cache: PrimitiveProvider | None = None) -> None:
    """Compare results; an executor with a ``cache`` computes what floats of the interpreter do not hold."""
    want = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    graph = load_onnx(model)
    found = (run_wire(*graph.to_wire(), {"x": x}) if cache is None else Executor(graph, cache=cache).run(x=x))["y"]
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=0)
    assert found.shape == want.shape


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("items", ITEMS)
def test_n_grams_are_counted_as_onnx_runtime_does(items: str, mode: str, cache: PrimitiveProvider) -> None:
    rng, known = np.random.default_rng(len(items)), ITEMS[items].astype(np.int64)
    for number, dims in enumerate(((3, 50), (1, 7), (40,), (2, 1), (5, 2))):
        pool = [
            sorted({tuple(int(item) for item in rng.choice(known, size)) for _ in range(30)}) for size in (1, 2, 3)
        ][: 1 + number % 3]
        count = sum(map(len, pool))
        columns = rng.permutation(count + 3)[:count].tolist()
        if mode == "TF":
            columns = [column // 2 for column in columns]
        least = 1 + number % 2
        how = {
            "mode": mode, "min_gram_length": min(least, len(pool)), "max_gram_length": len(pool), "max_skip_count": number % 3,
            **({"weights": rng.uniform(0.5, 2, count).astype(np.float32).tolist()} if mode != "TF" else {}),
        }  # fmt: skip
        x = rng.choice(np.concatenate([known, known // 2 + 1]), dims)
        check(model_of(dims, pool, columns, TensorProto.INT64, **how), x, cache if items == "ends" else None)
        if items == "near":
            check(model_of(dims, pool, columns, TensorProto.INT32, **how), x.astype(np.int32))


def test_many_n_grams_take_a_few_nodes_of_tables_as_large_as_they_are() -> None:
    rng = np.random.default_rng(1)
    pairs = np.unique(rng.integers(0, 5000, (9000, 2)), axis=0)
    pool: list[list[tuple[int, ...]]] = [[(item,) for item in range(5000)], [(int(a), int(b)) for a, b in pairs]]
    how = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0}
    model = model_of((4, 60), pool, list(range(5000 + len(pairs))), TensorProto.INT64, **how)
    wire, constants = load_onnx(model).to_wire()
    assert len(wire["nodes"]) < 100
    assert sum(each.array.nbytes for each in constants) < 1 << 20
    check(model, rng.choice(pairs.reshape(-1), (4, 60)).astype(np.int64))


def test_an_n_gram_twice_is_refused() -> None:
    how = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0}
    model = model_of((2, 5), [[(1,)], [(1, 2), (2, 1), (1, 2)]], [0, 1, 2, 3], TensorProto.INT64, **how)
    with pytest.raises(ModelError, match="an n-gram of 2 items occurs more than once"):
        load_onnx(model)
