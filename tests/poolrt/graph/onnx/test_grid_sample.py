"""GridSample of few and of many channels, of images and of volumes, beside its definition in float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

from poolrt import Executor, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.onnx.single_node import model_of, runtime

Array = NDArray[Any]


def mirrored(place: float, size: int, corners: bool) -> float:
    """Return a place moved to and fro between both ends until it is inside."""
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    if low == high:
        return 0.0
    while not low <= place <= high:
        place = 2 * (low if place < low else high) - place
    return place


def keys(distance: float) -> float:
    """Return the weight of cubic convolution, whose slope one element away is -0.75."""
    x, a = abs(distance), -0.75
    return (a + 2) * x**3 - (a + 3) * x**2 + 1 if x <= 1 else a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a


def taps(place: float, size: int, mode: str, padding: str, corners: bool) -> list[tuple[int, float]]:
    """Return (index, weight) of the neighbours of a place along a dimension, without those that count as zeros."""

    def inside(at: float) -> float:
        if padding == "reflection":
            at = mirrored(at, size, corners)
        return min(max(at, 0.0), size - 1.0)

    if padding != "zeros" and mode != "cubic":
        place = inside(place)
    first = int(np.floor(place))
    if mode == "nearest":
        found = [(int(np.rint(place)), 1.0)]
    elif mode == "linear":
        found = [(first, 1 - (place - first)), (first + 1, place - first)]
    else:
        found = [(first + step, keys(place - first - step)) for step in (-1, 0, 1, 2)]
    if padding == "zeros":
        return [(at, weight) for at, weight in found if 0 <= at < size]
    return [(int(inside(at)), weight) for at, weight in found]


def sampled(source: Array, grid: Array, mode: str, padding: str, corners: bool) -> Array:
    """Return what ONNX defines, one place after the other."""
    *_, count = grid.shape
    sizes = source.shape[2:]
    result = np.zeros((*source.shape[:2], *grid.shape[1:-1]))
    for number, *to in np.ndindex(grid.shape[:-1]):
        axes = []
        for axis, size in enumerate(sizes):
            given = float(grid[(number, *to, count - 1 - axis)])
            place = (given + 1) / 2 * (size - 1) if corners else ((given + 1) * size - 1) / 2
            axes.append(taps(place, size, mode, padding, corners))
        for each in itertools.product(*axes):
            weight = np.prod([share for _, share in each])
            result[(number, slice(None), *to)] += weight * source[(number, slice(None), *(at for at, _ in each))]
    return result


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.one_in(6)
def test_few_channels_and_many_are_sampled_as_defined(mode: str, padding: str, cache: PrimitiveProvider) -> None:
    rng = np.random.default_rng()
    for channels, ndims in ((1, 2), (4, 2), (6, 2), (17, 2), (2, 3), (9, 3)):
        if mode == "cubic" and ndims == 3:
            continue
        corners, batch = bool(rng.integers(2)), int(rng.integers(1, 4))
        sizes, wanted = (tuple(int(size) for size in rng.integers(2, 7, ndims)) for _ in range(2))
        dtype = (np.float32, np.float64)[int(rng.integers(2))]
        source = rng.standard_normal((batch, channels, *sizes)).astype(dtype)
        grid = rng.uniform(-1.7, 1.7, (batch, *wanted, ndims)).astype(dtype)
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        inputs = [
            helper.make_tensor_value_info(name, kind, array.shape) for name, array in (("x", source), ("g", grid))
        ]
        node = helper.make_node(
            "GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding, align_corners=int(corners)
        )
        graph = helper.make_graph([node], "sampled", inputs, [helper.make_empty_tensor_value_info("y")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        executor = Executor(load_onnx(model.SerializeToString()), cache=cache)
        got = executor.run(x=source, g=grid)["y"]
        exact = sampled(source.astype(np.float64), grid.astype(np.float64), mode, padding, corners)
        assert got.dtype == dtype
        near = 1e-5 if dtype == np.float32 else 1e-12
        np.testing.assert_allclose(got, exact, near, near, err_msg=f"{source.shape} to {wanted}, corners {corners}")


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_places_half_way_between_elements(cache: PrimitiveProvider, padding: str, corners: int) -> None:
    # Whole numbers and halves are half way between two elements of even and odd sizes.
    axis = np.arange(-3, 3.5, 0.5, dtype=np.float32)
    grid = np.stack(np.meshgrid(axis, axis), -1)[None]
    image = np.arange(20, dtype=np.float32).reshape(1, 1, 5, 4)
    shapes = {"x": image.shape, "grid": grid.shape}
    model = model_of("GridSample", shapes, opset=20, mode="nearest", padding_mode=padding, align_corners=corners)
    found = Executor(load_onnx(model), cache=cache).run(x=image, grid=grid)["y"]
    np.testing.assert_array_equal(found, runtime(model, {"x": image, "grid": grid})[0])
