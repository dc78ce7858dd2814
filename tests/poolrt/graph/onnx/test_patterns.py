"""Functions that exporters spell out are one operation, and what is nearly such a function is left as it is."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from poolrt import load_onnx
from poolrt.graph import passes
from tests.poolrt.graph.interpreter import run_wire

from .single_node import runtime
from .transformers import Export


def gelu_new(power: bool, bend: float = 0.044715) -> onnx.ModelProto:
    """Return GELU by tanh, as GPT-2 (with ``power``) or PyTorch's own operation is exported."""
    made = Export(0)
    if power:
        cube = made.node("Pow", "x", made.constant(np.float32(3)))
    else:
        cube = made.node("Mul", "x", made.node("Mul", "x", "x"))
    inner = made.node("Add", "x", made.node("Mul", cube, made.constant(np.float32(bend))))
    tanh = made.node("Tanh", made.node("Mul", inner, made.constant(np.float32((2 / np.pi) ** 0.5))))
    half = made.node("Mul", made.constant(np.float32(0.5)), "x")
    above = made.node("Add", made.constant(np.float32(1)), tanh)
    return made.model({"x": (TensorProto.FLOAT, (3, 7))}, made.node("Mul", half, above))


def swish(gated: str = "x") -> onnx.ModelProto:
    """Return x times the logistic function of x, or of another tensor."""
    made = Export(0)
    gate = made.node("Sigmoid", made.node("Mul", "x", made.constant(np.float32(2))) if gated == "other" else "x")
    return made.model({"x": (TensorProto.FLOAT, (3, 7))}, made.node("Mul", gate, "x"))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (gelu_new(True), ["gelu_tanh"]),
        (gelu_new(False), ["gelu_tanh"]),
        (gelu_new(True, 0.05), None),
        (gelu_new(True, 0.0447), None),
        (swish(), ["swish"]),
        (swish("other"), None),
    ],
    ids=["gelu, a power", "gelu, products", "another bend", "nearly the bend", "swish", "another gate"],
)
def test_a_function_that_is_spelled_out_is_one_operation(made: onnx.ModelProto, expected: list[str] | None) -> None:
    graph = load_onnx(made.SerializeToString())
    found = [node.attrs["algorithm"] for node in passes.optimize(graph.to_ir()).nodes if node.kind != "reshape"]
    assert found == expected if expected else len(found) > 1
    x = np.random.default_rng(2).standard_normal((3, 7)).astype(np.float32)
    np.testing.assert_allclose(
        run_wire(*graph.to_wire(), {"x": x})["y"], runtime(made, {"x": x})[0], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("point", [0, 3])
def test_zero_points_that_are_zeros_are_not_subtracted(point: int) -> None:
    made, rng = Export(0), np.random.default_rng()
    points = np.full(5, point, np.int8)
    scales, x = rng.uniform(0.1, 1, 5).astype(np.float32), rng.integers(-128, 128, (3, 5, 7), np.int8)
    found = made.node("DequantizeLinear", "x", made.constant(scales), made.constant(points), axis=1)
    graph = load_onnx(made.model({"x": (TensorProto.INT8, x.shape)}, found).SerializeToString())
    (node,) = passes.optimize(graph.to_ir()).nodes
    assert [use.kind for use in node.quantisation] == ["scales", "zero_points"][: 2 if point else 1]
    expected = (x.astype(np.float64) - point) * scales[:, None]
    np.testing.assert_allclose(next(iter(run_wire(*graph.to_wire(), {"x": x}).values())), expected, rtol=1e-6)
