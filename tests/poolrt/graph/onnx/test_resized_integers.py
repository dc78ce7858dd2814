"""Resize of integers: nearest elements are copied, interpolated ones cut off as ONNX Runtime does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from poolrt import Executor, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.interpreter import run_wire

Array = NDArray[Any]
SCALES = np.array([1, 1, 2, 1.5], np.float32)
#: Types that ONNX Runtime resizes.
THEIRS = ("uint8", "int8", "int32")


def model(dtype: str, **attributes: Any) -> onnx.ModelProto:
    """Return a model that resizes (2, 3, 5, 6) to (2, 3, 10, 9)."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ports = [helper.make_tensor_value_info(n, number, dims) for n, dims in (("x", (2, 3, 5, 6)), ("y", (2, 3, 10, 9)))]
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], **attributes)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [numpy_helper.from_array(SCALES, "scales")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def image(dtype: str) -> Array:
    limits = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    kind = np.uint64 if dtype == "uint64" else np.int64
    drawn = np.random.default_rng(5).integers(*limits, (2, 3, 5, 6), kind, endpoint=True)
    return drawn.astype(dtype)


def positions(count: int, size: int, scale: float, coordinates: str) -> Array:
    """Return the places of results among ``count`` elements of an axis."""
    places = np.arange(size, dtype=np.float64)
    if coordinates == "align_corners":
        return places * (count - 1) / (size - 1)
    return np.clip((places + 0.5) / scale - 0.5 if coordinates == "half_pixel" else places / scale, 0, count - 1)


def interpolated(x: Array, coordinates: str) -> Array:
    """Return the exact results in float64."""
    for axis, scale in ((2, 2.0), (3, 1.5)):
        at = positions(x.shape[axis], int(x.shape[axis] * scale), scale, coordinates)
        low = np.minimum(np.floor(at).astype(int), x.shape[axis] - 2)
        share = (at - low).reshape(-1, *(1,) * (3 - axis))
        x = x.take(low, axis) * (1 - share) + x.take(low + 1, axis) * share
    return x


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "int32", "int64", "uint64", "bool"])
def test_nearest_elements_are_copied(dtype: str, cache: PrimitiveProvider) -> None:
    x = image(dtype)
    given = model(dtype, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    want = x[:, :, np.arange(10) // 2][:, :, :, np.floor(np.arange(9) / 1.5).astype(int)]
    if dtype in ("int64", "uint64"):  # the references compute in float64
        found = Executor(load_onnx(given), cache=cache).run(x=x)["y"]
    else:
        found = run_wire(*load_onnx(given).to_wire(), {"x": x})["y"]
    np.testing.assert_array_equal(found, want)
    assert load_onnx(given).output_types == {"y": dtype}
    if dtype in THEIRS:
        session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("dtype", THEIRS)
def test_fractions_of_interpolated_elements_are_cut_off(dtype: str, coordinates: str) -> None:
    x = image(dtype) // (1 if dtype != "int32" else 2**12)
    given = model(dtype, mode="linear", coordinate_transformation_mode=coordinates)
    exact = interpolated(x, coordinates)
    found = run_wire(*load_onnx(given).to_wire(), {"x": x})["y"].astype(np.int64)
    session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.abs(found - session.run(None, {"x": x})[0]).max() <= 1
    # A result that is whole but for an error of the last place is that or the one before.
    whole = np.abs(exact - np.rint(exact)) < 1e-4
    np.testing.assert_array_equal(found[~whole], np.trunc(exact)[~whole])
    assert (np.abs(found - np.rint(exact))[whole] <= 1).all()


def test_bytes_are_resized_by_kernels(cache: PrimitiveProvider) -> None:
    x = image("uint8")
    for mode in ("nearest", "linear"):
        graph = load_onnx(model("uint8", mode=mode))
        want = run_wire(*graph.to_wire(), {"x": x})["y"]
        found = Executor(graph, cache=cache).run(x=x)["y"]
        assert found.dtype == np.uint8
        assert np.abs(found.astype(int) - want).max() <= (mode == "linear")
