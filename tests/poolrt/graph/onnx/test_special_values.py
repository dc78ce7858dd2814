"""Operators of NaN, infinities, zeros with a sign, tiny and huge numbers, and of integers at their limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from poolrt import Executor, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.onnx.models import session

#: Each compiles kernels of its own.
pytestmark = pytest.mark.one_test_in(2)

Array = NDArray[Any]
TINY = (1e-45, 1e-38, 1e-20, 1e-10, 1e-5, 0.01, 0.039, 0.041, 0.3, 0.999, 1.0, 1.000001, 1.5, 20.0, 88.5, 1e10, 1e38)
HUGE = (*TINY, 710.2, 1e160, 1e300)
NAN, INF = float("nan"), float("inf")


def model(
    operator: str, feeds: Mapping[str, Array], constants: Mapping[str, Array], **attributes: Any
) -> onnx.ModelProto:
    """Return a model of one node that reads the feeds and then the constants; an empty name stands for none."""
    opset = attributes.pop("opset", 18)
    node = helper.make_node(operator, [*feeds, *constants], ["y"], **attributes)
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items() if name]
    graph = helper.make_graph([node], "g", ports, [helper.make_empty_tensor_value_info("y")], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


@pytest.fixture
def run(cache: PrimitiveProvider) -> Callable[..., Array]:
    """Compute one node."""

    def computed(
        operator: str, feeds: Mapping[str, Array], constants: Mapping[str, Array] | None = None, **attributes: Any
    ) -> Array:
        graph = load_onnx(model(operator, feeds, constants or {}, **attributes))
        return np.asarray(Executor(graph, cache=cache).run(**feeds)["y"])

    return computed


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("operator", "function"),
    [
        ("Sinh", np.sinh), ("Cosh", np.cosh), ("Asinh", np.arcsinh), ("Acosh", np.arccosh), ("Atanh", np.arctanh),
    ],
)  # fmt: skip
@pytest.mark.one_in(2)
def test_hyperbolic_functions_are_precise_everywhere(
    run: Callable[..., Array], operator: str, function: np.ufunc, dtype: type[np.floating[Any]]
) -> None:
    sizes = np.array(TINY if dtype == np.float32 else HUGE)
    x = np.concatenate([sizes, -sizes, [0.0, -0.0, INF, -INF, NAN]]).astype(dtype)
    with np.errstate(all="ignore"):
        want = function(x.astype(np.longdouble)).astype(dtype)
    found = run(operator, {"x": x})
    np.testing.assert_allclose(found, want, rtol=1e-6 if dtype == np.float32 else 1e-12, atol=0)
    np.testing.assert_array_equal(np.signbit(found[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize(
    "operator", ["Elu", "Selu", "Celu", "Sin", "Tan", "Asin", "Atan", "Tanh", "Erf", "Softsign", "HardSwish", "Round"]
)
@pytest.mark.one_in(3)
def test_functions_through_the_origin_keep_the_sign_of_a_zero(run: Callable[..., Array], operator: str) -> None:
    x = np.tile(np.array([0.0, -0.0, -0.0], np.float32), 7)
    found = run(operator, {"x": x}, opset=22)
    np.testing.assert_array_equal(found, x)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(x))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_negative_zeros_have_their_sign(run: Callable[..., Array], dtype: type[np.floating[Any]]) -> None:
    x = np.array([0.0, -0.0, 1.5, -INF, NAN], dtype)
    found = run("Neg", {"x": x})
    np.testing.assert_array_equal(found, -x)
    np.testing.assert_array_equal(np.signbit(found[:4]), np.signbit(-x[:4]))


@pytest.mark.parametrize("operator", ["HardSigmoid", "LeakyRelu"])
def test_defaults_of_attributes_are_numbers_of_float32(run: Callable[..., Array], operator: str) -> None:
    x = np.array([-1.25, -0.3, 0.4, 1.7])
    given = model(operator, {"x": x}, {})
    want: Any = ReferenceEvaluator(given).run(None, {"x": x})
    np.testing.assert_allclose(run(operator, {"x": x}), want[0], rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_powers_of_infinities_and_zeros(run: Callable[..., Array], dtype: type[np.floating[Any]]) -> None:
    bases = np.array([INF, -INF, 0.0, -0.0, 1, -1, NAN, 2, -2, 0.5], dtype)
    exponents = np.array([-4.25, 0.5, 2, 3, -3, -2, 0, INF, -INF, NAN, -0.5], dtype)
    x, z = (np.ascontiguousarray(each) for each in np.broadcast_arrays(bases[:, None], exponents))
    with np.errstate(all="ignore"):
        want = np.power(x, z)
    found = run("Pow", {"x": x, "z": z})
    rtol = {np.float16: 1e-3, np.float32: 3e-7, np.float64: 1e-15}[dtype]
    np.testing.assert_allclose(found, want, rtol=rtol)
    np.testing.assert_array_equal(np.signbit(found[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("kind", [np.int32, np.float64, np.float16])
def test_powers_by_exponents_of_another_type(run: Callable[..., Array], kind: type[Any]) -> None:
    rng = np.random.default_rng(5)
    x, z = rng.uniform(-3, 3, (4, 1, 7)).astype(np.float32), rng.integers(-6, 7, (5, 1)).astype(kind)
    found = run("Pow", {"x": x, "z": z})
    np.testing.assert_allclose(found, np.power(x.astype(np.float64), z), rtol=3e-7)
    assert found.dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("operator", "function"), [("Max", np.maximum), ("Min", np.minimum)])
@pytest.mark.one_in(2)
def test_the_greatest_and_the_least_of_nan_is_nan(
    run: Callable[..., Array], operator: str, function: np.ufunc, dtype: type[np.floating[Any]]
) -> None:
    x, z = np.array([[NAN, NAN, 1, 2, INF, -INF], [NAN, 3, NAN, 1, NAN, NAN]], dtype)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run(operator, {"x": x, "z": z}), function(x, z))
        np.testing.assert_array_equal(run(operator, {"x": x}, {"z": z}), function(x, z))
        zero = np.zeros((), dtype)
        np.testing.assert_array_equal(run(operator, {"x": x}, {"z": zero}), function(x, zero))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    "limits", [{"low": -1.5}, {"": 0.0, "high": 1.5}, {"low": -1.5, "high": 1.5}, {"low": -INF, "high": INF}]
)
def test_nan_is_not_clipped(
    run: Callable[..., Array], limits: Mapping[str, float], dtype: type[np.floating[Any]]
) -> None:
    x = np.array([NAN, INF, -INF, -2, -0.5, 0.5, 2], dtype)
    want = np.clip(x, limits.get("low", -INF), limits.get("high", INF))
    bounds = {name: np.asarray(number, dtype) for name, number in limits.items()}
    np.testing.assert_array_equal(run("Clip", {"x": x}, bounds), want)
    named = {name: array for name, array in bounds.items() if name}
    if "" not in bounds:
        np.testing.assert_array_equal(run("Clip", {"x": x, **named}), want)


@pytest.mark.parametrize("limits", [{"low": NAN}, {"": 0.0, "high": NAN}, {"low": NAN, "high": 0.5}])
def test_nothing_but_nan_is_between_limits_of_which_one_is_nan(
    run: Callable[..., Array], limits: Mapping[str, float]
) -> None:
    x = np.array([NAN, INF, -2, 0.5], np.float32)
    bounds = {name: np.asarray(number, np.float32) for name, number in limits.items()}
    assert np.isnan(run("Clip", {"x": x}, bounds)).all()
    if "" not in bounds:
        assert np.isnan(run("Clip", {"x": x, **bounds})).all()


def test_infinities_are_clipped_by_the_limits_of_old_models(run: Callable[..., Array]) -> None:
    x = np.array([NAN, INF, -INF, 3], np.float32)
    largest = np.finfo(np.float32).max
    np.testing.assert_array_equal(run("Clip", {"x": x}, opset=10, max=1.0), np.clip(x, -largest, 1))
    np.testing.assert_array_equal(run("Clip", {"x": x}, opset=10, min=1.0), np.clip(x, 1, largest))
    half = x.astype(np.float16)
    np.testing.assert_array_equal(run("Clip", {"x": half}, opset=10, max=1.0), np.minimum(half, np.float16(1)))


def test_positive_elements_have_no_slope(run: Callable[..., Array]) -> None:
    x = np.array([[2], [-1], [0]], np.float32)
    slope = np.array([[INF, NAN, 2]], np.float32)
    # A slope of another shape than the tensor's.
    found = run("PRelu", {"x": x, "slope": slope})
    np.testing.assert_array_equal(found, [[2, 2, 2], [-INF, NAN, -2], [0, 0, 0]])


@pytest.mark.parametrize("alpha", [-2.0, -0.5, 0.5])
def test_celu_with_an_alpha_of_any_sign(run: Callable[..., Array], alpha: float) -> None:
    x = np.array([-3, -1, -0.0, 0.5, 2.5, 40, INF, -INF, NAN], np.float32)
    with np.errstate(all="ignore"):
        want = np.maximum(x, 0) + np.minimum(0, alpha * (np.exp(x / alpha) - 1))
    np.testing.assert_allclose(run("Celu", {"x": x}, alpha=alpha), want, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
@pytest.mark.one_in(2)
def test_slopes_and_norms_of_integers(run: Callable[..., Array], dtype: type[np.integer[Any]]) -> None:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(4).integers(limits.min, limits.max, (4, 7), dtype, endpoint=True)
    z = x[::-1].copy()
    np.testing.assert_array_equal(run("PRelu", {"x": x, "z": z}), np.where(x < 0, x * z, x))
    large = x[0, 0].reshape(())
    np.testing.assert_array_equal(run("ReduceL1", {"x": large}), np.abs(large))
    np.testing.assert_array_equal(run("ReduceSumSquare", {"x": large}), np.square(x)[0, 0])
    small = (x % 50).astype(dtype)
    # Fractions are cut off.
    root = np.sqrt((small.astype(np.float64) ** 2).sum(1, keepdims=True))
    np.testing.assert_array_equal(run("ReduceL2", {"x": small}, {"axes": np.array([1])}), root.astype(dtype))
    logarithm = np.log(small.sum(dtype=np.float64)).astype(dtype)
    np.testing.assert_array_equal(run("ReduceLogSum", {"x": small}, keepdims=0), logarithm)


@pytest.mark.parametrize("operator", ["Less", "Equal"])
def test_booleans_without_elements_are_results_of_a_session(cache: PrimitiveProvider, operator: str) -> None:
    x = np.zeros((2, 0), np.float32)
    found = session(model(operator, {"x": x, "z": x}, {}), cache).run(None, {"x": x, "z": x})[0]
    assert (found.dtype.name, found.shape) == ("bool", (2, 0))


def test_groups_of_channels_without_spatial_dimensions(run: Callable[..., Array]) -> None:
    x = np.random.default_rng(2).standard_normal((3, 6)).astype(np.float32)
    scale, shift = np.arange(1, 7, dtype=np.float32), np.arange(6, dtype=np.float32)
    groups = x.reshape(3, 2, 3).astype(np.float64)
    normal = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    found = run("GroupNormalization", {"x": x}, {"scale": scale, "shift": shift}, num_groups=2, opset=21)
    np.testing.assert_allclose(found, normal.reshape(3, 6) * scale + shift, rtol=1e-4, atol=1e-5)


def test_places_of_the_greatest_elements_pass_over_nan(cache: PrimitiveProvider) -> None:
    x = np.array([[[3, NAN, 1, 7], [NAN, 2, 9, NAN]]], np.float32)
    given = model("MaxPool", {"x": x}, {}, kernel_shape=[2], strides=[2])
    given.graph.node[0].output.append("places")
    given.graph.output.append(helper.make_tensor_value_info("places", onnx.TensorProto.INT64, (1, 2, 2)))
    found = Executor(load_onnx(given), cache=cache).run(x=x)
    np.testing.assert_array_equal(found["y"], [[[3, 7], [2, 9]]])
    np.testing.assert_array_equal(found["places"], [[[0, 3], [5, 6]]])


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.one_in(2)
def test_products_of_integers_wrap(run: Callable[..., Array], dtype: type[np.integer[Any]]) -> None:
    limits, rng = np.iinfo(dtype), np.random.default_rng(1)
    x, z, c = (rng.integers(limits.min, limits.max, dims, dtype, endpoint=True) for dims in ((3, 5), (5, 4), (1, 4)))
    product = np.matmul(x, z)
    # -1 as an integer of any type.
    opposite = np.array(2**64 - 1, np.uint64).astype(dtype)
    found = run("Gemm", {"x": x, "z": z, "c": c}, alpha=2.0, beta=-1.0, opset=13)
    np.testing.assert_array_equal(found, product * dtype(2) + c * opposite)
    np.testing.assert_array_equal(run("Einsum", {"x": x, "z": z}, equation="ij,jk->ik"), product)
    np.testing.assert_array_equal(run("Einsum", {"x": x}, equation="ij->j"), x.sum(0, dtype))


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_integers_are_convolved_in_groups(run: Callable[..., Array], groups: int) -> None:
    rng = np.random.default_rng(3)
    x, weights = rng.integers(0, 256, (1, 6, 7), np.uint8), rng.integers(0, 256, (6, 6 // groups, 3), np.uint8)
    point = np.array(9, np.uint8)
    found = run("ConvInteger", {"x": x}, {"weights": weights, "point": point}, group=groups)
    wide, each = x.astype(np.int32) - 9, 6 // groups
    want = np.zeros((1, 6, 5), np.int32)
    for channel, start in ((c, c // each * each) for c in range(6)):
        for place in range(5):
            window = wide[0, start : start + each, place : place + 3]
            want[0, channel, place] = (window * weights[channel].astype(np.int32)).sum()
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("opset", [21, 23])
def test_quotients_of_half_precision_are_rounded_since_opset_23(run: Callable[..., Array], opset: int) -> None:
    x = (3 * np.random.default_rng(0).standard_normal(500)).astype(np.float16)
    scale, zero = np.array(0.0647, np.float16), np.array(3, np.int16)
    divided = x / scale if opset == 23 else x.astype(np.float32) / np.float32(scale)
    found = run("QuantizeLinear", {"x": x}, {"scale": scale, "zero": zero}, opset=opset)
    np.testing.assert_array_equal(found, np.rint(divided.astype(np.float32)).astype(np.int16) + 3)
