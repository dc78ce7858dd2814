"""Models that ONNX Runtime's tools have quantised compute what ONNX Runtime does, on integers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from poolrt import Executor, Graph, Pool, load_onnx
from poolrt.graph import passes
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.interpreter import run_wire

from .quantised_models import FORMS, IMAGE, ROWS, Array, network, perceptron, quantise, sample, session

MODELS = {"network": (network(), IMAGE), "perceptron": (perceptron(), ROWS)}
#: Form -> products whose source is of bytes, in either model.
ON_BYTES = {"qdq": 7, "qdq per channel": 7, "operators of int8": 7, "dynamic": 14, "dynamic of int8": 7, "4 bits": 0}


def prepare(name: str, form: str, folder: Path) -> tuple[onnx.ModelProto, Array, Array]:
    """Return a quantised model, an input, and ONNX Runtime's result."""
    model, dims = MODELS[name]
    quantised, x = quantise(model, form, folder), sample(dims, 9)
    return quantised, x, np.asarray(session(quantised).run(None, {"x": x})[0])


def products_of_bytes(graph: Graph) -> int:
    """Return the number of convolutions and products that read bytes."""
    ir = passes.optimize(graph.to_ir())
    kinds = Counter(node.kind for node in ir.nodes if ir.values[node.inputs[0]].dtype in ("u8", "s8"))
    return kinds["convolution"] + kinds["matmul"] + kinds["inner_product"]


@pytest.mark.parametrize("form", FORMS)
def test_a_quantised_model_computes_what_onnx_runtime_does(form: str, tmp_path: Path) -> None:
    found = 0
    for name in MODELS:
        model, x, want = prepare(name, form, tmp_path)
        graph = load_onnx(model)
        found += products_of_bytes(graph)
        np.testing.assert_allclose(run_wire(*graph.to_wire(), {"x": x})["y"], want, atol=0.01 * np.abs(want).max())
    # Weights of uint8 with any zero point are computed in float32 by QLinearConv and QLinearMatMul.
    assert found == ON_BYTES.get(form, found)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_quantised_model_is_executed(form: str, tmp_path: Path, cache: PrimitiveProvider) -> None:
    for name in MODELS:
        model, x, want = prepare(name, form, tmp_path)
        found = Executor(load_onnx(model), cache=cache).run(x=x)["y"]
        np.testing.assert_allclose(found, want, atol=0.01 * np.abs(want).max())


@pytest.mark.slow
def test_quantised_models_run_in_a_pool(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    (tmp_path / "home").mkdir(mode=0o700)
    with Pool(workers=1, threads=1, home=home, redis_url=f"unix://{home}/none.sock") as pool:
        for form in ("qdq", "operators of int8", "dynamic of int8", "4 bits"):
            for name in MODELS:
                model, x, want = prepare(name, form, tmp_path)
                found = pool.load(load_onnx(model)).run(x=x)["y"]
                np.testing.assert_allclose(found, want, atol=0.01 * np.abs(want).max())
