"""Rotary embeddings of both domains are one primitive, and another that looks up angles, with ONNX Runtime's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper

from poolrt import Executor, ModelError, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider

Array = NDArray[Any]
BATCH, HEADS, ROWS, DEPTH = 2, 3, 5, 16


def embedding(names: str, given: dict[str, Array], domain: str, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node("RotaryEmbedding", names.split(), ["y"], "node", domain=domain, **attributes)
    sources = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in given.items()
    ]
    graph = helper.make_graph([node], "single", sources, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 23), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    ("domain", "places"), [("", "rows"), ("", "none"), ("com.microsoft", "rows"), ("com.microsoft", "first")]
)
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("dim", [0, 8])
def test_an_embedding_is_one_primitive_with_the_results_of_onnx_runtime(
    domain: str, places: str, interleaved: int, joined: bool, dim: int, cache: PrimitiveProvider
) -> None:
    rng = np.random.default_rng()
    pairs = (dim or DEPTH) // 2
    table = (BATCH, ROWS, pairs) if places == "none" else (40, pairs)
    x = rng.standard_normal((BATCH, ROWS, HEADS * DEPTH) if joined else (BATCH, HEADS, ROWS, DEPTH)).astype(np.float32)
    turns = rng.uniform(-3, 3, table)
    given: dict[str, Array] = {"x": x, "c": np.cos(turns).astype(np.float32), "s": np.sin(turns).astype(np.float32)}
    if places != "none":
        given["p"] = rng.integers(0, 30, (BATCH, ROWS) if places == "rows" else (1,))
    how: dict[str, Any] = {"interleaved": interleaved}
    if dim or (joined and not domain):
        how |= {"num_heads": HEADS, "rotary_embedding_dim": dim}
    names = "x p c s" if domain else " ".join(given)
    model = embedding(names, given, domain, **how)
    executor = Executor(load_onnx(model), cache=cache)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, given)
    np.testing.assert_allclose(executor.run(**given)["y"], want, rtol=1e-5, atol=1e-6)
    kinds = [pd.op.kind for pd in executor.time_steps(1, **given)[0].primitives]
    assert kinds.count("rotary") == 1
    assert set(kinds) <= {"rotary", "gather", "binary"}


@pytest.mark.parametrize(
    ("sizes", "table", "how", "why"),
    [
        ((2, 5, 48), (2, 5, 8), {}, "needs num_heads"),
        ((2, 5, 48), (2, 5, 8), {"num_heads": 5}, "5 heads do not divide 48"),
        ((2, 3, 5, 16), (2, 5, 7), {}, "expect angles"),
        ((2, 16), (2, 5, 8), {}, "rank 3 or 4"),
    ],
)
def test_an_embedding_that_does_not_fit_is_refused(
    sizes: tuple[int, ...], table: tuple[int, ...], how: dict[str, int], why: str
) -> None:
    given = {name: np.zeros(dims, np.float32) for name, dims in (("x", sizes), ("c", table), ("s", table))}
    with pytest.raises(ModelError, match=why):
        load_onnx(embedding("x c s", given, "", **how))
