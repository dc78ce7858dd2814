"""Places of Resize's nearest elements: exact for sizes, and of the float32 numbers that scales are."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from poolrt import Executor, load_onnx
from poolrt.graph.onnx.operators.resize_weights import resize_weights
from poolrt.graph.onnx.operators.resizing import blocks
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.interpreter import run_wire
from tests.poolrt.graph.onnx.single_node import runtime

#: Each compiles kernels of its own.
pytestmark = pytest.mark.one_test_in(2)

Array = NDArray[Any]
HALF = Fraction(1, 2)
NEAREST: dict[str, Callable[[Fraction], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda place: math.ceil(place - HALF),
    "round_prefer_ceil": lambda place: math.floor(place + HALF),
}
#: The place of a result's element, and a scale.
PLACES: dict[str, Callable[[int, Fraction], Fraction]] = {
    "asymmetric": lambda index, scale: index / scale,
    "half_pixel": lambda index, scale: (index + HALF) / scale - HALF,
}


def model(shape: tuple[int, ...], target: Array, **attributes: Any) -> onnx.ModelProto:
    """Return a model that resizes to sizes (integers) or by scales (floats)."""
    by_sizes = target.dtype == np.int64
    order = ["x", "", "", "target"] if by_sizes else ["x", "", "target"]
    node = helper.make_node("Resize", order, ["y"], **{"mode": "nearest", **attributes})
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, dims in (("x", shape), ("y", None))]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], [numpy_helper.from_array(target, "target")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("coordinates", PLACES)
@pytest.mark.parametrize("nearest", NEAREST)
def test_places_are_exact_for_sizes_and_scales(coordinates: str, nearest: str) -> None:
    options = {"coordinate_transformation_mode": coordinates, "nearest_mode": nearest}
    for size, wanted in ((500, 224), (375, 224), (10, 7), (6, 5), (49, 30), (3, 1), (6, 1), (7, 23)):
        x = np.arange(size, dtype=np.float32).reshape(1, 1, size)
        rounded = np.float32(wanted / size)
        # The next number behind a quotient, too, whose product with the size is cut off to the same size.
        above = np.nextafter(rounded, np.float32(9))
        for scale in (rounded, above) if int(size * float(rounded)) == wanted else (above,):
            for target, exact in (
                (np.array([1, 1, wanted], np.int64), Fraction(wanted, size)),
                (np.array([1, 1, scale], np.float32), Fraction(float(scale))),
            ):
                found = run_wire(*load_onnx(model(x.shape, target, **options)).to_wire(), {"x": x})["y"]
                places = [PLACES[coordinates](index, exact) for index in range(wanted)]
                want = [min(max(NEAREST[nearest](place), 0), size - 1) for place in places]
                np.testing.assert_array_equal(found[0, 0], want, err_msg=f"{size} {wanted} {target}")


def test_a_scale_just_above_a_quotient_sees_the_element_before(cache: PrimitiveProvider) -> None:
    x = np.arange(500, dtype=np.float32).reshape(1, 1, 500, 1) + np.zeros((1, 1, 1, 2), np.float32)
    given = model(
        x.shape, np.array([1, 1, 0.448, 2], np.float32),
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip
    found = Executor(load_onnx(given), cache=cache).run(x=x)["y"]
    # 56 / float32(0.448) is 124.999996.
    assert found[0, 0, 56, 0] == runtime(given, {"x": x})[0][0, 0, 56, 0] == 124
    by_sizes = model(
        x.shape, np.array([1, 1, 224, 4]), coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    assert Executor(load_onnx(by_sizes), cache=cache).run(x=x)["y"][0, 0, 56, 0] == 125


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_corners_are_those_of_scaled_sizes_that_are_not_whole(cache: PrimitiveProvider, mode: str) -> None:
    for shape, scales in (
        ((2, 3, 75, 20), (0.5, 0.5)), ((1, 2, 5, 7), (2.3, 0.3)), ((1, 1, 4, 9), (0.6, 1.3)), ((3, 1, 3, 8), (0.4, 1.2)),
    ):  # fmt: skip
        target = np.array([1, 1, *scales], np.float32)
        given = model(shape, target, mode=mode, coordinate_transformation_mode="align_corners")
        x = np.random.default_rng().standard_normal(shape).astype(np.float32)
        graph = load_onnx(given)
        assert graph.node_count == 1
        # ONNX Runtime takes the result's size in the place of the product.
        want = np.asarray(next(iter(ReferenceEvaluator(given).run(None, {"x": x}))))
        np.testing.assert_allclose(Executor(graph, cache=cache).run(x=x)["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("policy", ["scales", "not_larger"])
def test_a_size_that_is_rounded_to_0_gives_no_elements(cache: PrimitiveProvider, policy: str) -> None:
    if policy == "scales":
        given = model((2, 3, 4), np.array([1, 0.3, 2], np.float32))
    else:
        given = model((2, 1, 13), np.array([4, 5, 1]), keep_aspect_ratio_policy=policy)
    x = np.ones([dim.dim_value for dim in given.graph.input[0].type.tensor_type.shape.dim], np.float32)
    graph = load_onnx(given)
    found = Executor(graph, cache=cache).run(**({"x": x} if graph.inputs else {}))["y"]
    assert (found.shape, found.size) == (runtime(given, {"x": x})[0].shape, 0)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners"])
def test_rows_behind_what_is_resized_are_taken_whole(cache: PrimitiveProvider, mode: str, coordinates: str) -> None:
    for shape, sizes in (
        ((2, 3, 5, 19), (2, 3, 10, 19)),
        ((1, 5, 7, 33), (1, 9, 14, 33)),
        ((2, 6, 4, 16), (2, 3, 8, 16)),
    ):
        target = np.array(sizes, np.int64)
        given = model(shape, target, mode=mode, coordinate_transformation_mode=coordinates, nearest_mode="floor")
        x = np.random.default_rng().standard_normal(shape).astype(np.float32)
        graph = load_onnx(given)
        assert "transpose" not in str(graph.to_ir().nodes)
        want = np.asarray(next(iter(ReferenceEvaluator(given).run(None, {"x": x}))))
        np.testing.assert_allclose(Executor(graph, cache=cache).run(x=x)["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "scales"),
    [
        ((2, 150, 210), (1, 0.5, 0.4)),
        ((1, 2, 140, 6), (1, 1, 0.5, 2)),
        ((1, 130, 3, 160), (1, 0.5, 1, 0.25)),
        ((9, 140), (1, 0.9)),
    ],
)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_many_antialiased_results_see_only_a_part_of_the_source_each(
    shape: tuple[int, ...], scales: tuple[float, ...], mode: str
) -> None:
    """Blocks of results are the product with the whole matrix of weights, also where there is one block."""
    x = np.random.default_rng().standard_normal(shape).astype(np.float32)
    given = model(shape, np.array(scales, np.float32), mode=mode, antialias=1)
    wire = load_onnx(given).to_wire()
    found = run_wire(*wire, {"x": x})["y"]
    want = x.astype(np.float64)
    for axis, scale in enumerate(np.array(scales, np.float32)):
        exact, size = Fraction(float(scale)), shape[axis]
        options = {"coordinates": "half_pixel", "cubic_coeff_a": -0.75}
        weights = resize_weights(size, int(size * exact), exact, mode, True, options)
        if exact != 1:
            want = np.moveaxis(np.tensordot(weights, want, (1, axis)), 0, axis)
    np.testing.assert_allclose(found, want, 1e-5, 1e-5)


def test_weights_are_cut_along_their_diagonal_if_that_halves_the_products() -> None:
    options = {"coordinates": "half_pixel"}
    near = resize_weights(400, 200, Fraction(1, 2), "linear", True, options)
    parts = blocks(near)
    assert [block.shape for block, _ in parts] == [(32, 65), *[(32, 66)] * 5, (8, 17)]
    whole = np.zeros_like(near)
    for number, (block, first) in enumerate(parts):
        whole[32 * number : 32 * number + len(block), first : first + block.shape[1]] = block
    np.testing.assert_array_equal(whole, near)
    assert len(blocks(near[:40, :80])) == 1
    assert blocks(np.zeros((96, 50)))[1][0].shape == (32, 1)
