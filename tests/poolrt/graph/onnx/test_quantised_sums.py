"""Convolutions and products of bytes have ONNX Runtime's results to the last bit, halves and large biases included."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from poolrt import Executor, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider

Array = NDArray[Any]
IMAGE, ROWS = (2, 16, 17, 19), (61, 48)
#: Scales of source, weights and result: results of the first are halves very often, those of the others never exactly.
SCALES = {"halves": (0.5, 0.25, 8.0), "fractions": (0.0213, 0.0071, 0.0539)}


def quantised_model(kind: str, scales: tuple[float, float, float], point: int, per_channel: bool) -> onnx.ModelProto:
    """Return a convolution or product of int8, into int8 with a zero point; convolutions have a bias."""
    rng = np.random.default_rng(17)
    dims = {"dense": (24, 16, 3, 3), "depthwise": (16, 1, 3, 3), "product": (48, 33)}[kind]
    weights = rng.integers(-127, 128, dims, dtype=np.int8)
    count = dims[-1] if kind == "product" else dims[0]
    wide = np.full(count, scales[1]) * (2.0 ** rng.integers(-2, 1, count) if per_channel else 1.0)
    fixed: dict[str, Any] = {
        "xs": np.float32(scales[0]), "xz": np.int8(3), "w": weights, "ws": wide.astype(np.float32) if per_channel else
        np.float32(scales[1]), "wz": np.zeros(count if per_channel else (), np.int8), "ys": np.float32(scales[2]),
        "yz": np.int8(point),
    }  # fmt: skip
    attributes: dict[str, Any] = {}
    if kind != "product":
        # As large as the sums, so that they cancel each other here and there.
        fixed["b"] = rng.integers(-20_000, 20_000, count, dtype=np.int32)
        attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "group": 16 if kind == "depthwise" else 1}
    operator = "QLinearMatMul" if kind == "product" else "QLinearConv"
    node = helper.make_node(operator, ["x", *fixed], ["y"], "node", **attributes)
    source = helper.make_tensor_value_info("x", TensorProto.INT8, ROWS if kind == "product" else IMAGE)
    result = helper.make_tensor_value_info("y", TensorProto.INT8, None)
    initializers = [numpy_helper.from_array(np.asarray(each), name) for name, each in fixed.items()]
    graph = helper.make_graph([node], "single", [source], [result], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("point", [0, 5, -98])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("kind", ["dense", "depthwise", "product"])
def test_results_are_those_of_onnx_runtime(
    kind: str, scales: str, point: int, per_channel: bool, cache: PrimitiveProvider
) -> None:
    model = quantised_model(kind, SCALES[scales], point, per_channel)
    dims = ROWS if kind == "product" else IMAGE
    x = np.random.default_rng().integers(-128, 128, dims, dtype=np.int8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    found = Executor(load_onnx(model), cache=cache).run(x=x)["y"]
    assert np.unique(want).size > 20
    np.testing.assert_array_equal(found, want)
