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
from poolrt.workers.desc import Arg
from poolrt.workers.primitives.provider import PrimitiveProvider

#: Each compiles kernels of its own.
pytestmark = pytest.mark.one_test_in(2)

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


#: Forms of scales, zero points and channels; in `make test`, each two of them together.
FORMS = [
    pytest.param(name, point, per_channel, marks=[pytest.mark.slow] * (point == 5 or (s + p + per_channel) % 2))
    for s, name in enumerate(SCALES)
    for p, point in enumerate((0, -98, 5))
    for per_channel in (False, True)
]


@pytest.mark.parametrize(("scales", "point", "per_channel"), FORMS)
@pytest.mark.parametrize("kind", ["dense", "depthwise", "product"])
@pytest.mark.one_in(4)
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


def single(operator: str, given: dict[str, Array], results: tuple[str, ...]) -> onnx.ModelProto:
    """Return a node of computed operands as a model."""
    sources = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in given.items()
    ]
    written = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([helper.make_node(operator, [*given], [*results])], "single", sources, written)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("left", [np.uint8, np.int8])
@pytest.mark.parametrize("right", [np.uint8, np.int8])
@pytest.mark.one_in(2)
def test_a_product_of_computed_bytes_without_zero_points_is_one_primitive(
    left: type, right: type, cache: PrimitiveProvider
) -> None:
    """The reference is NumPy: ONNX Runtime's products of some types saturate on processors without VNNI."""
    rng = np.random.default_rng()
    for rows, depth, columns in ((1, 7, 33), (31, 64, 17)):
        given = {
            name: rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, dims, kind)
            for name, kind, dims in (("a", left, (rows, depth)), ("b", right, (depth, columns)))
        }
        a, b = (given[name].astype(np.int64) for name in "ab")
        executor = Executor(load_onnx(single("MatMulInteger", given, ("y",))), cache=cache)
        np.testing.assert_array_equal(executor.run(**given)["y"], a @ b)
        assert len(executor.time_steps(1, **given)[0].primitives) == 1
        points: dict[str, Array] = {"p": np.asarray(3, left), "q": np.asarray(100, right)}
        executor = Executor(load_onnx(single("MatMulInteger", {**given, **points}, ("y",))), cache=cache)
        np.testing.assert_array_equal(executor.run(**given, **points)["y"], (a - 3) @ (b - 100))


def test_quantising_by_the_range_is_one_primitive(cache: PrimitiveProvider) -> None:
    rng = np.random.default_rng()
    for dims, shift in (((1, 7), 0.0), ((33, 130), 3.0), ((2, 3, 8191), -3.0)):
        given = {"x": (rng.standard_normal(dims) + shift).astype(np.float32)}
        model = single("DynamicQuantizeLinear", given, ("y", "s", "z"))
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        executor = Executor(load_onnx(model), cache=cache)
        for name, want in zip("ysz", session.run(None, given), strict=True):
            np.testing.assert_array_equal(executor.run(**given)[name], want, f"{name} of {dims}")
        assert len(executor.time_steps(1, **given)[0].primitives) == 1


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_means_of_images_are_those_of_onnx_runtime(kind: type, cache: PrimitiveProvider) -> None:
    """Scales are such that halves are frequent, and images such that sums are not divided exactly."""
    rng, limits = np.random.default_rng(), np.iinfo(kind)
    for dims, scales, point in (
        ((2, 33, 7, 7), (0.02, 0.02), 5),
        ((1, 64, 4, 8), (0.5, 0.25), 0),
        ((3, 5, 19), (0.03, 0.01), 77),
    ):
        x = rng.integers(limits.min, limits.max + 1, dims, kind)
        fixed = {"s": np.float32(scales[0]), "z": kind(point), "t": np.float32(scales[1]), "u": kind(100)}
        node = helper.make_node(
            "QLinearGlobalAveragePool", ["x", *fixed], ["y"], domain="com.microsoft", channels_last=0
        )
        source = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), dims)
        initializers = [numpy_helper.from_array(np.asarray(each), name) for name, each in fixed.items()]
        graph = helper.make_graph([node], "single", [source], [helper.make_empty_tensor_value_info("y")], initializers)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (want,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(Executor(load_onnx(model), cache=cache).run(x=x)["y"], want, str(dims))


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.one_in(4)
def test_sums_of_all_pairs_of_bytes_are_those_of_onnx_runtime(
    kind: type, cache: PrimitiveProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zero points are added before a sum is rounded, so that its last bits decide about numbers near halves.

    ONNX Runtime uses all instructions of this host, which add products without rounding them; so does poolrt here.
    """
    monkeypatch.setenv("POOLRT_MAX_CPU_ISA", "")
    rng, limits = np.random.default_rng(), np.iinfo(kind)
    a: Array = np.repeat(np.arange(limits.min, limits.max + 1), 256).reshape(256, 256).astype(kind)
    given = {"a": a, "b": np.ascontiguousarray(a.T)}
    # A sum of 3.49999 steps, which with a zero point of -128 is nearly a half
    known = (
        (0.038738266, 0.03318588, 0.0285552088),
        np.array([-38, -37, -128]) - int(np.iinfo(np.int8).min) + limits.min,
    )
    for scales, points in [
        known,
        *((rng.uniform(0.01, 0.06, 3), rng.integers(limits.min, limits.max, 3)) for _ in range(12)),
    ]:
        names = "as", "az", "bs", "bz", "ys", "yz"
        fixed = [
            each for pair in zip(np.asarray(scales, np.float32), points.astype(kind), strict=True) for each in pair
        ]
        node = helper.make_node("QLinearAdd", ["a", *names[:2], "b", *names[2:]], ["y"], domain="com.microsoft")
        element = helper.np_dtype_to_tensor_dtype(a.dtype)
        sources = [helper.make_tensor_value_info(name, element, a.shape) for name in given]
        initializers = [
            numpy_helper.from_array(np.asarray(each), name) for name, each in zip(names, fixed, strict=True)
        ]
        result = helper.make_tensor_value_info("y", element, a.shape)
        graph = helper.make_graph([node], "single", sources, [result], initializers)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (want,) = session.run(None, given)
        np.testing.assert_array_equal(
            Executor(load_onnx(model), cache=cache).run(**given)["y"], want, str((scales, points))
        )


def single_with_constants(
    operator: str, given: dict[str, Array], fixed: dict[str, Array], domain: str = "", **attributes: Any
) -> onnx.ModelProto:
    """Return a node of computed operands and then of constants as a model."""
    sources = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in given.items()
    ]
    node = helper.make_node(operator, [*given, *fixed], ["y"], "node", domain=domain, **attributes)
    initializers = [numpy_helper.from_array(np.asarray(each), name) for name, each in fixed.items()]
    graph = helper.make_graph([node], "single", sources, [helper.make_empty_tensor_value_info("y")], initializers)
    opsets = [helper.make_opsetid("", 21), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("operator", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize(
    ("dims", "axis", "block"),
    [((6, 64), 1, 16), ((64, 9), 0, 8), ((2, 12, 5, 3), 1, 4), ((3, 20), 1, 16), ((7, 5, 2), -2, 3), ((2, 6), 1, 6)],
)
@pytest.mark.one_in(4)
def test_computed_tensors_are_quantised_in_blocks_by_one_primitive(
    operator: str, kind: type, dims: tuple[int, ...], axis: int, block: int, cache: PrimitiveProvider
) -> None:
    rng, limits = np.random.default_rng(), np.iinfo(kind)
    counts = list(dims)
    counts[axis] = -(-dims[axis] // block)
    scale = rng.uniform(0.01, 2.0, counts).astype(np.float32)
    zero = rng.integers(limits.min, limits.max + 1, counts, kind)
    quantises = operator == "QuantizeLinear"
    x: Array = (rng.standard_normal(dims) * 60).astype(np.float32) if quantises else rng.integers(0, 101, dims, kind)
    model = single_with_constants(operator, {"x": x}, {"s": scale, "z": zero}, axis=axis, block_size=block)
    executor = Executor(load_onnx(model), cache=cache)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(executor.run(x=x)["y"], session.run(None, {"x": x})[0])
    wide, point = (np.take(each, np.arange(dims[axis]) // block, axis) for each in (scale, zero.astype(np.int64)))
    want: Array = (
        np.clip(np.rint(x / wide) + point, limits.min, limits.max)
        if quantises
        else (x - point).astype(np.float32) * wide
    )
    np.testing.assert_array_equal(executor.run(x=x)["y"], want.astype(kind if quantises else np.float32))
    assert len(executor.time_steps(1, x=x)[0].primitives) == 1


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.int16, np.int32])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.one_in(3)
def test_dequantising_is_one_primitive(kind: type, axis: int | None, cache: PrimitiveProvider) -> None:
    rng, dims = np.random.default_rng(), (21, 35)
    limits, counts = np.iinfo(kind), () if axis is None else dims[axis]
    fixed: dict[str, Array] = {"s": np.asarray(rng.uniform(0.01, 2.0, counts), np.float32)}
    if kind is not np.int32:
        fixed["z"] = np.asarray(rng.integers(limits.min, limits.max + 1, counts), kind)
    x = rng.integers(limits.min, limits.max + 1, dims, kind)
    model = single_with_constants("DequantizeLinear", {"x": x}, fixed, axis=0 if axis is None else axis)
    executor = Executor(load_onnx(model), cache=cache)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(executor.run(x=x)["y"], session.run(None, {"x": x})[0])
    assert len(executor.time_steps(1, x=x)[0].primitives) == 1


@pytest.mark.parametrize(
    ("dims", "other"),
    [
        ((2, 6, 5, 7), (1, 6, 1, 1)), ((2, 6, 5, 7), (6, 1, 1)), ((5, 48), (48,)), ((5, 48), (1,)),
        ((5, 48), (5, 1)), ((3, 5, 48), (5, 48)), ((3, 4, 5, 21), (4, 1, 21)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.one_in(4)
def test_a_smaller_quantised_operand_is_combined_as_it_is_stored(
    operator: str, known: bool, kind: type, dims: tuple[int, ...], other: tuple[int, ...], cache: PrimitiveProvider
) -> None:
    rng, low = np.random.default_rng(), np.iinfo(kind).min
    a, b = (rng.integers(low, low + 256, sizes, kind) for sizes in (dims, other))
    scales, zeros = (0.25, 0.5, 0.75), (low + 100, low + 150, low + 128)
    fixed: dict[str, Array] = {
        f"{name}{side}": np.asarray(number, np.float32 if name == "s" else kind)
        for name, numbers in (("s", scales), ("z", zeros))
        for side, number in zip("aby", numbers, strict=True)
    }
    names = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    given = {"a": a} if known else {"a": a, "b": b}
    node = helper.make_node(operator, names, ["y"], "node", domain="com.microsoft")
    sources = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in given.items()
    ]
    stored = [numpy_helper.from_array(each, name) for name, each in ({**fixed, "b": b} if known else fixed).items()]
    graph = helper.make_graph([node], "single", sources, [helper.make_empty_tensor_value_info("y")], stored)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    executor = Executor(load_onnx(helper.make_model(graph, opset_imports=opsets, ir_version=10)), cache=cache)
    left, right = (a.astype(np.float64) - zeros[0]) * scales[0], (b.astype(np.float64) - zeros[1]) * scales[1]
    value = (left + right if operator == "QLinearAdd" else left * right) / scales[2] + zeros[2]
    got = executor.run(**given)["y"].astype(np.float64)
    near = np.abs(value - np.floor(value) - 0.5) < 1e-3
    assert np.array_equal(np.where(near, got, np.clip(np.rint(value), low, low + 255)), got)
    assert len(executor.time_steps(1, **given)[0].primitives) == 1


@pytest.mark.parametrize("left", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("right", "zero"), [(np.uint8, 0), (np.uint8, 117), (np.uint8, 128), (np.uint8, 255), (np.int8, -9)]
)
@pytest.mark.parametrize(("rows", "several", "end"), [(1, False, True), (5, True, True), (70, False, False)])
@pytest.mark.one_in(4)
def test_weights_of_a_product_may_have_a_zero_point(
    left: type, right: type, zero: int, rows: int, several: bool, end: bool, cache: PrimitiveProvider
) -> None:
    rng, depth, columns = np.random.default_rng(), 48, 37
    x, w = rng.integers(*limits_of(left), (rows, depth), left), rng.integers(*limits_of(right), (depth, columns), right)
    # All numbers of the type are there: the weights less their zero point fit no type of 8 bits, unless that is near the middle.
    w[0, :2] = np.iinfo(right).min, np.iinfo(right).max
    point = int(np.iinfo(left).min) + 100
    scale = np.asarray(rng.uniform(0.004, 0.01, columns if several else ()), np.float32)
    bias = rng.standard_normal(columns).astype(np.float32)
    fixed: dict[str, Array] = {
        "xs": np.asarray(0.03, np.float32), "xz": np.asarray(point, left), "w": w, "ws": scale,
        "wz": np.full(scale.shape, zero, right), "b": bias, "ys": np.asarray(0.7, np.float32), "yz": np.asarray(90, np.uint8),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=1),
        helper.make_node("MatMul", ["xf", "wf"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["r"]),
        *([helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["y"])] if end else []),
    ]
    graph = helper.make_graph(
        nodes, "single", [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_empty_tensor_value_info("y" if end else "r")], [numpy_helper.from_array(a, n) for n, a in fixed.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    executor = Executor(load_onnx(model), cache=cache)
    (got,) = executor.run(x=x).values()
    factors = (
        (x.astype(np.float64) - point) * float(fixed["xs"]),
        (w.astype(np.float64) - zero) * scale.astype(np.float64),
    )
    exact, size = factors[0] @ factors[1] + bias, np.abs(factors[0]) @ (np.abs(factors[1]) + 255 * scale) + np.abs(bias)
    error = 8 * 2.0**-24 * size
    if end:
        least, most = (np.clip(np.rint((exact + side * error) / float(fixed["ys"])) + 90, 0, 255) for side in (-1, 1))
        assert np.all((least <= got) & (got <= most))
    else:
        assert np.all(np.abs(got - exact) <= error)
    sources = [
        pd.op.memories()[Arg.SRC].dtype for pd in executor.time_steps(1, x=x)[0].primitives if pd.op.kind == "matmul"
    ]
    assert sources
    assert set(sources) <= {"u8", "s8"}


def limits_of(kind: type) -> tuple[int, int]:
    """Return the least number of a type, and the one after the greatest."""
    return int(np.iinfo(kind).min), int(np.iinfo(kind).max) + 1
