"""ONNX Runtime's sums are exact in the form with unsigned weights, on every processor."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from .unsigned_weights import with_unsigned_weights


def model(source: np.dtype, fixed: dict[str, np.ndarray], points: int) -> onnx.ModelProto:
    """Return a model of one product of integers; ``b`` is an input if it is not fixed."""
    names = ["a", "b", "az", "bz"][: 2 + points]
    declared = [helper.make_tensor_value_info("a", helper.np_dtype_to_tensor_dtype(source), ["m", "k"])]
    if "b" not in fixed:
        declared.append(helper.make_tensor_value_info("b", TensorProto.INT8, ["k", "n"]))
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", names, ["y"])],
        "product",
        declared,
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(array, name) for name, array in fixed.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("points", [0, 2])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("source", ["uint8", "int8"])
def test_sums_are_exact(source: str, constant: bool, points: int) -> None:
    rng = np.random.default_rng(3)
    limits = np.iinfo(source)
    for rows, depth, columns in ((1, 6, 7), (5, 64, 33), (70, 129, 40)):
        a = rng.integers(limits.min, limits.max + 1, (rows, depth)).astype(source)
        b = rng.integers(-128, 128, (depth, columns)).astype(np.int8)
        a[:, :2], b[:2] = limits.max, 127
        fixed = {"az": np.array(100, source), "bz": np.array(-3, np.int8)} if points else {}
        want = (a.astype(np.int64) - (100 if points else 0)) @ (b.astype(np.int64) + (3 if points else 0))
        weights = {"b": b} if constant else {}
        given = with_unsigned_weights(model(np.dtype(source), {**fixed, **weights}, points))
        feeds = {"a": a} if constant else {"a": a, "b": b}
        session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(session.run(None, feeds)[0], want)
