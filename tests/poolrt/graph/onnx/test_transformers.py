"""Transformers as PyTorch exports them compute what ONNX Runtime computes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
import pytest

from poolrt import Executor, Graph, load_onnx
from poolrt.graph import passes
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.interpreter import run_wire

from .transformers import LAYERS, Array, bert, gpt2, sdpa, vit

_IDS = np.random.default_rng(4).integers(0, 50, (2, 7))
_MASK = np.array([[1] * 7, [1] * 4 + [0] * 3], np.int64)
CASES: dict[str, tuple[onnx.ModelProto, dict[str, Array]]] = {
    "bert": (bert(), {"ids": _IDS, "mask": _MASK}),
    "gpt2": (gpt2(), {"ids": _IDS[:, :6]}),
    # The first row has no token that counts.
    "sdpa": (sdpa(), {"ids": _IDS[:, :5], "mask": np.array([[0] * 5, [1, 0, 1, 1, 0]])}),
    "vit": (vit(), {"x": np.random.default_rng(5).standard_normal((2, 3, 12, 12)).astype(np.float32)}),
}


def expected(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Array:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (result,) = session.run(["y"], dict(feeds))
    found: Array = np.asarray(result)
    return found


def kinds(graph: Graph) -> list[str]:
    return [node.kind for node in passes.optimize(graph.to_ir()).nodes]


@pytest.mark.parametrize("name", CASES)
def test_a_transformer_computes_what_onnx_runtime_does(name: str) -> None:
    model, feeds = CASES[name]
    graph = load_onnx(model.SerializeToString(), batch=2)
    found = run_wire(*graph.to_wire(), feeds)["y"]
    np.testing.assert_allclose(found, expected(model, feeds), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_transformer_is_executed(name: str, cache: PrimitiveProvider) -> None:
    model, feeds = CASES[name]
    graph = load_onnx(model.SerializeToString(), batch=2)
    found = Executor(graph, cache=cache).run(**feeds)["y"]
    np.testing.assert_allclose(found, expected(model, feeds), rtol=1e-4, atol=1e-4)


def test_gelu_that_is_spelled_out_is_one_function() -> None:
    for name in ("bert", "vit"):
        ir = passes.optimize(load_onnx(CASES[name][0].SerializeToString(), batch=2).to_ir())
        used = [node for node in ir.nodes if node.attrs.get("algorithm") == "gelu_erf"]
        used += [node for node in ir.nodes if any(each.algorithm == "gelu_erf" for each in node.post_ops)]
        assert len(used) == LAYERS
        assert all(ir.values[value].dtype != "f64" for node in ir.nodes for value in node.outputs)


def test_attention_that_is_spelled_out_is_one_operation() -> None:
    assert {
        name: kinds(load_onnx(model.SerializeToString(), batch=2)).count("attention")
        for name, (model, _) in CASES.items()
    } == {
        "bert": LAYERS,
        "gpt2": LAYERS,
        "sdpa": LAYERS,
        "vit": LAYERS,
    }
