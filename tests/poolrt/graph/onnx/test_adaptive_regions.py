"""RoiAlign with as many samples as a box has elements computes what ONNX Runtime does, for boxes of any sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from poolrt import Executor, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.interpreter import run_wire

Array = NDArray[Any]


def model(opset: int, count: int, **attributes: Any) -> onnx.ModelProto:
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, 13, 17)),
        helper.make_tensor_value_info("boxes", TensorProto.FLOAT, (count, 4)),
        helper.make_tensor_value_info("images", TensorProto.INT64, (count,)),
    ]
    node = helper.make_node("RoiAlign", ["x", "boxes", "images"], ["y"], **attributes)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", ports, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def feeds(count: int) -> dict[str, Array]:
    """Return boxes in an image of 26 x 34, one of them of no size and one of whole parts."""
    rng = np.random.default_rng(count)
    ends = np.sort(rng.uniform(0, 1, (count, 2, 2)), 1) * [34, 26]
    ends[0] = ends[0, :1]
    ends[1] = [[2, 4], [2 + 28, 4 + 12]]
    x = rng.standard_normal((2, 3, 13, 17))
    return {"x": x.astype("f4"), "boxes": ends.reshape(count, 4).astype("f4"), "images": rng.integers(0, 2, count)}


CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "mean": (16, {"output_height": 3, "output_width": 2}),
    "whole elements": (10, {"output_height": 2, "output_width": 5, "sampling_ratio": 0}),
    "greatest": (16, {"output_height": 2, "output_width": 2, "mode": "max"}),
    "many parts": (16, {"output_height": 16, "output_width": 20}),
}


@pytest.mark.parametrize("name", CASES)
def test_each_box_has_its_own_number_of_samples(name: str) -> None:
    opset, attributes = CASES[name]
    given, arrays = model(opset, 9, spatial_scale=0.5, **attributes), feeds(9)
    session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, arrays)
    # Boxes that a run computes, and boxes that are known
    for known in ({}, {"boxes": arrays["boxes"]}):
        rest = {key: array for key, array in arrays.items() if key not in known}
        found = run_wire(*load_onnx(given, values=known).to_wire(), rest)["y"]
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_boxes_of_any_sizes_are_pooled_by_kernels(cache: PrimitiveProvider) -> None:
    given, arrays = model(16, 5, output_height=2, output_width=3, spatial_scale=0.5), feeds(5)
    session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    found = Executor(load_onnx(given), cache=cache).run(**arrays)["y"]
    np.testing.assert_allclose(found, session.run(None, arrays)[0], rtol=1e-4, atol=1e-5)


def test_known_boxes_beyond_the_image_have_all_their_samples() -> None:
    given, arrays = model(16, 2, output_height=2, output_width=2), feeds(2)
    arrays["boxes"] = np.array([[-20, -10, 60, 50], [1, 1, 30, 40]], np.float32)
    session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    boxes = arrays.pop("boxes")
    found = run_wire(*load_onnx(given, values={"boxes": boxes}).to_wire(), arrays)["y"]
    np.testing.assert_allclose(found, session.run(None, {**arrays, "boxes": boxes})[0], rtol=1e-5, atol=1e-5)
