"""Models of unusual shape give what ONNX Runtime gives: outputs that are inputs, constants, numbers, or the same twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from poolrt.workers.primitives.provider import PrimitiveProvider

from .models import Array, model, rival, session

_KIND = TensorProto.FLOAT
_TABLE: Any = (_KIND, ["rows", "columns"])
_RELU = helper.make_node("Relu", ["x"], ["y"])
#: Nodes, inputs and outputs.
CASES: dict[str, tuple[list[Any], dict[str, Any], dict[str, Any]]] = {
    "a number": ([helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], {"x": _TABLE}, {"y": (_KIND, [])}),
    "an input": ([helper.make_node("Identity", ["x"], ["y"])], {"x": _TABLE}, {"y": _TABLE}),
    "an input by its name": ([_RELU], {"x": _TABLE}, {"x": _TABLE, "y": _TABLE}),
    "its shape": ([helper.make_node("Shape", ["x"], ["y"])], {"x": _TABLE}, {"y": (TensorProto.INT64, [2])}),
    "a constant": ([helper.make_node("Constant", [], ["y"], value_float=2.0)], {}, {"y": (_KIND, [])}),
    "the same twice": (
        [_RELU, helper.make_node("Identity", ["y"], ["z"])], {"x": _TABLE}, {"y": _TABLE, "z": _TABLE}
    ),
    "an open size that is written as -1": ([_RELU], {"x": (_KIND, [-1, 3])}, {"y": _TABLE}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_model_returns_what_it_does_in_onnx_runtime(name: str, cache: PrimitiveProvider) -> None:
    made = model(*CASES[name])
    found, expected = session(made, cache), rival(made)
    assert [each.shape for each in found.get_inputs()] == [each.shape for each in expected.get_inputs()]
    # Neither side by side in memory nor in order.
    x: Array = np.random.default_rng().standard_normal((6, 4), np.float32).T[::2, ::2]
    feed = {"x": x} if found.get_inputs() else {}
    outputs = found.run(None, feed)
    for given, wanted in zip(outputs, expected.run(None, feed), strict=True):
        np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-6, strict=True)
    for given in outputs:
        given[...] = 0
        assert not np.shares_memory(given, x)
    for given, wanted in zip(found.run(None, feed), expected.run(None, feed), strict=True):
        np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-6)
