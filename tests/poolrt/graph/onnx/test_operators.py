"""Every operator that can be imported, against ONNX Runtime, option by option."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from poolrt import Executor, UnsupportedNode, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.interpreter import run_wire

from .node_tests import interpret
from .single_node import model_of, runtime

Array = NDArray[Any]
_random = np.random.default_rng(3)


def array(*shape: int) -> Array:
    return _random.standard_normal(shape).astype(np.float32)


def integers(*values: int) -> Array:
    return np.array(values, np.int64)


IMAGE = {"x": (2, 4, 9, 7)}
MATRIX = {"x": (3, 6)}
_K3 = {"w": array(6, 4, 3, 3), "b": array(6)}
_BN = {"scale": array(4), "shift": array(4), "mean": array(4), "variance": np.abs(array(4)) + 0.5}

Case = tuple[str, Mapping[str, Sequence[Any]], Mapping[str, Array], int, dict[str, Any]]


def case(
    operator: str, inputs: Mapping[str, Sequence[Any]], constants: Mapping[str, Array] | None = None, **attributes: Any
) -> Case:
    opset = attributes.pop("opset", 13)
    return operator, inputs, constants or {}, opset, attributes


CASES: list[Case] = [
    case("Conv", IMAGE, _K3),
    case("Conv", IMAGE, {"w": _K3["w"]}, pads=[1, 0, 2, 1], strides=[2, 1]),
    case("Conv", IMAGE, _K3, dilations=[2, 3], opset=9),
    case("Conv", IMAGE, {"w": array(8, 1, 3, 3)}, group=4),
    case("Conv", IMAGE, _K3, auto_pad="SAME_UPPER", strides=[2, 2]),
    case("Conv", IMAGE, {"w": array(6, 4, 2, 4)}, auto_pad="SAME_LOWER"),
    case("Conv", IMAGE, _K3, auto_pad="VALID", strides=[2, 2]),
    case("Conv", {"x": (1, 2, 9)}, {"w": array(3, 2, 3)}, pads=[1, 1]),
    case("Conv", {"x": (1, 2, 4, 5, 6)}, {"w": array(3, 2, 2, 3, 1)}),
    case("Conv", {**IMAGE, "w": (6, 4, 3, 3)}),
    case("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    case("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    case("MaxPool", IMAGE, kernel_shape=[3, 3], strides=[4, 4], pads=[1, 1, 1, 1], ceil_mode=1),
    case("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[5, 3], pads=[0, 0, 1, 1], ceil_mode=1, opset=19),
    case("MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 3]),
    case("MaxPool", IMAGE, kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2], opset=9),
    case("AveragePool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    case("AveragePool", IMAGE, kernel_shape=[3, 2], pads=[1, 0, 1, 1], count_include_pad=1),
    case("AveragePool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    case(
        "AveragePool", IMAGE, kernel_shape=[3, 3], strides=[4, 2], pads=[1, 1, 1, 1], ceil_mode=1, count_include_pad=1
    ),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], auto_pad="SAME_LOWER", strides=[2, 2]),
    case("AveragePool", IMAGE, kernel_shape=[2, 2], dilations=[2, 2], opset=19),
    case("AveragePool", {"x": (2, 3, 8)}, kernel_shape=[3], strides=[2]),
    case("GlobalAveragePool", IMAGE),
    case("GlobalMaxPool", IMAGE),
    case("ReduceMean", IMAGE, axes=[2, 3]),
    case("ReduceMean", IMAGE, axes=[-1, 2], keepdims=0),
    case("ReduceMean", IMAGE, {"axes": integers(2, 3)}, opset=18),
    case("BatchNormalization", IMAGE, _BN, opset=9),
    case("BatchNormalization", IMAGE, _BN, opset=15, epsilon=0.1),
    case("BatchNormalization", {"x": (3, 4)}, _BN, opset=9),
    case("LRN", IMAGE, size=3),
    case("LRN", IMAGE, size=5, alpha=0.5, beta=0.6, bias=2.0),
    case("Softmax", MATRIX),
    case("Softmax", MATRIX, axis=0),
    case("Softmax", IMAGE, opset=12),
    case("Softmax", IMAGE, axis=2, opset=9),
    case("Softmax", IMAGE, axis=-1, opset=11),
    case("Softmax", {"x": (2, 5, 1, 1)}, opset=9),
    case("LogSoftmax", IMAGE, axis=1),
    case("LogSoftmax", IMAGE, axis=2, opset=11),
    case("Gemm", MATRIX, {"b": array(6, 5)}),
    case("Gemm", MATRIX, {"b": array(5, 6), "c": array(5)}, transB=1),
    case("Gemm", MATRIX, {"b": array(5, 6), "c": array(1, 5)}, transB=1, alpha=0.5, beta=2.0),
    case("Gemm", MATRIX, {"b": array(6, 5), "c": array(1)}, beta=0.25),
    case("Gemm", MATRIX, {"b": array(6, 5), "c": array(3, 1)}, beta=0.25),
    case("Gemm", MATRIX, {"b": array(6, 3), "c": array(3, 1)}),
    case("Gemm", MATRIX, {"b": array(6, 5), "c": array(3, 5)}),
    case("Gemm", MATRIX, {"b": array(6, 5), "c": array(5)}, beta=0.0),
    case("Gemm", {"x": (6, 3)}, {"b": array(6, 5), "c": array(5)}, transA=1, opset=9),
    case("Gemm", {**MATRIX, "b": (5, 6), "c": (5,)}, transB=1, alpha=2.0, beta=3.0),
    case("Gemm", {**MATRIX, "b": (6, 5)}, {"c": array(5)}),
    case("MatMul", MATRIX, {"b": array(6, 5)}),
    case("MatMul", {"x": (2, 3, 6)}, {"b": array(6, 5)}),
    case("MatMul", {"x": (2, 1, 3, 6), "b": (4, 6, 5)}),
    case("MatMul", {"x": (6,), "b": (6, 5)}),
    case("MatMul", {"x": (2, 3, 6), "b": (6,)}),
    case("MatMul", {"x": (6,), "b": (6,)}),
    case("MatMul", {"b": (6, 5)}, {"a": array(3, 6)}, order=["a", "b"]),
    case("Add", {"x": (2, 4, 3), "z": (4, 1)}),
    case("Add", IMAGE, {"z": array(4, 1, 1)}),
    case("Sub", {"x": (3,), "z": (2, 1)}),
    case("Sub", MATRIX, {"c": np.array(2, np.float32)}, order=["c", "x"]),
    case("Mul", MATRIX, {"z": array(3, 1)}, opset=7),
    case("Div", MATRIX, {"z": np.abs(array(1, 6)) + 1}),
    case("Sum", {"a": (2, 3), "b": (2, 3), "c": (2, 3)}),
    case("Sum", {"a": (2, 3), "b": (3,), "c": (2, 1)}),
    case("Sum", MATRIX),
    case("Max", {"a": (2, 3), "b": (3,), "c": (2, 1)}),
    case("Min", {"a": (2, 3), "b": (2, 3)}),
    case("Relu", MATRIX),
    case("LeakyRelu", MATRIX),
    case("LeakyRelu", MATRIX, alpha=0.3),
    case("Elu", MATRIX, alpha=0.7),
    case("Sigmoid", MATRIX),
    case("Tanh", MATRIX),
    case("Exp", MATRIX),
    case("Abs", MATRIX),
    case("Neg", MATRIX),
    case("Reciprocal", MATRIX),
    case("Softplus", MATRIX),
    case("HardSigmoid", MATRIX),
    case("HardSigmoid", MATRIX, alpha=0.3, beta=0.4),
    case("HardSwish", MATRIX, opset=14),
    case("Mish", MATRIX, opset=18),
    case("Gelu", MATRIX, opset=20),
    case("Clip", MATRIX, min=-0.5, max=0.25, opset=6),
    case("Clip", MATRIX, {"low": np.array(-0.5, np.float32), "high": np.array(0.25, np.float32)}),
    case("Clip", MATRIX, {"high": np.array(0.25, np.float32)}, order=["x", "", "high"]),
    case("Clip", MATRIX),
    case("Clip", {**MATRIX, "low": (), "high": ()}),
    case("PRelu", IMAGE, {"slope": array(4, 1, 1)}),
    case("PRelu", {**IMAGE, "slope": (7,)}),
    case("Selu", MATRIX),
    case("Selu", MATRIX, alpha=2.0, gamma=0.5),
    case("Softsign", MATRIX),
    case("Mean", {"a": (2, 3), "b": (2, 3)}),
    case("Mean", {"a": (2, 3), "b": (3,), "c": (2, 1)}),
    case("Pow", MATRIX, {"e": np.array(2, np.float32)}),
    case("Reshape", IMAGE, {"shape": integers(0, -1)}),
    case("Reshape", IMAGE, {"shape": integers(7, 2, 0, 4)}),
    case("Reshape", IMAGE, {"shape": integers(2, 252)}, allowzero=1, opset=14),
    case("Flatten", IMAGE),
    case("Flatten", IMAGE, axis=-1),
    case("Flatten", IMAGE, axis=0),
    case("Squeeze", {"x": (1, 3, 1)}, {"axes": integers(0)}),
    case("Squeeze", {"x": (1, 3, 1)}, axes=[-1], opset=11),
    case("Squeeze", {"x": (1, 3, 1)}),
    case("Unsqueeze", MATRIX, {"axes": integers(0, -1)}),
    case("Unsqueeze", MATRIX, axes=[1, 2], opset=11),
    case("Transpose", IMAGE),
    case("Transpose", IMAGE, perm=[0, 2, 3, 1]),
    case("Concat", {"a": (2, 3), "b": (2, 4)}, {"c": array(2, 1)}, axis=1),
    case("Concat", {"a": (2, 3), "b": (1, 3)}, axis=-2),
    case("Identity", MATRIX),
    case("Dropout", MATRIX, ratio=0.5, opset=10),
    case("Dropout", MATRIX, {"ratio": np.array(0.5, np.float32), "training": np.array(False)}),
    case("Cast", MATRIX, to=onnx.TensorProto.FLOAT),
    case("ReduceMean", IMAGE, axes=[1]),
    case("ReduceSum", IMAGE, {"axes": integers(-1, 0)}, keepdims=0),
    case("ReduceSum", IMAGE, noop_with_empty_axes=1),
    case("ReduceMax", IMAGE, axes=[2]),
    case("ReduceL2", IMAGE, axes=[1, 3], keepdims=0),
    case("ReduceLogSumExp", IMAGE, axes=[1]),
    case("LayerNormalization", IMAGE, {"s": array(9, 7), "b": array(9, 7)}, axis=2, opset=17),
    case("LayerNormalization", MATRIX, {"s": array(6)}, epsilon=0.1, opset=17),
    case("InstanceNormalization", IMAGE, {"s": array(4), "b": array(4)}),
    case("LpNormalization", MATRIX, axis=0),
    case("ConvTranspose", IMAGE, {"w": array(4, 3, 3, 2), "b": array(6)}, group=2, strides=[2, 3], pads=[1, 0, 0, 1]),
    case("ConvTranspose", IMAGE, {"w": array(4, 3, 3, 3)}, strides=[2, 2], output_padding=[1, 0], dilations=[2, 1]),
    case("ConvTranspose", IMAGE, {"w": array(4, 3, 3, 3)}, strides=[2, 2], auto_pad="SAME_UPPER"),
    case("ConvTranspose", IMAGE, {"w": array(4, 3, 3, 3)}, strides=[2, 2], auto_pad="SAME_LOWER"),
    case("ConvTranspose", IMAGE, {"w": array(4, 3, 3, 3)}, strides=[2, 2], output_shape=[18, 15]),
    case("ConvTranspose", IMAGE, {"w": array(4, 3, 3, 5), "b": array(6)}, group=2, dilations=[2, 1], pads=[2, 1, 1, 4]),
    case("ConvTranspose", IMAGE, {"w": array(4, 3, 3, 2)}, auto_pad="SAME_LOWER"),
    case("LpPool", IMAGE, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], p=3),
    case("LpPool", IMAGE, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
    case("Resize", IMAGE, {"r": array(0), "s": np.array([1, 1, 2, 0.6], "f4")}, mode="linear"),
    case(
        "Resize",
        IMAGE,
        {"r": array(0), "f": array(0), "s": integers(2, 4, 5, 11)},
        mode="cubic",
        order=["x", "r", "f", "s"],
    ),
    case(
        "Resize",
        IMAGE,
        {"r": array(0), "s": np.array([1, 1, 2, 3], "f4")},
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    ),
    case("Upsample", IMAGE, {"s": np.array([1, 1, 2, 3], "f4")}, opset=9),
    case("LSTM", {"x": (5, 2, 3)}, {"w": array(1, 16, 3), "r": array(1, 16, 4), "b": array(1, 32)}, hidden_size=4),
    case(
        "LSTM", {"x": (5, 2, 3)}, {"w": array(2, 16, 3), "r": array(2, 16, 4)}, hidden_size=4, direction="bidirectional"
    ),
    case("GRU", {"x": (5, 2, 3)}, {"w": array(1, 12, 3), "r": array(1, 12, 4), "b": array(1, 24)}, hidden_size=4),
    case(
        "GRU",
        {"x": (5, 2, 3)},
        {"w": array(1, 12, 3), "r": array(1, 12, 4), "b": array(1, 24)},
        hidden_size=4,
        linear_before_reset=1,
        direction="reverse",
    ),
    case(
        "RNN",
        {"x": (5, 2, 3)},
        {"w": array(1, 4, 3), "r": array(1, 4, 4), "b": array(1, 8)},
        hidden_size=4,
        activations=["Relu"],
    ),
    case("Slice", IMAGE, {"s": integers(3, -1), "e": integers(-99, 2), "a": integers(1, 3), "t": integers(-2, -1)}),
    case("Slice", IMAGE, {"s": integers(-12, -10), "e": integers(-99, -9), "a": integers(2, 3), "t": integers(-1, -2)}),
    case("Slice", IMAGE, starts=[1, 0], ends=[3, -1], axes=[1, 2], opset=9),
    case("Gather", IMAGE, {"i": np.array([[2, -1], [0, 0]], np.int64)}, axis=1),
    case("Gather", IMAGE, {"i": np.array(-2, np.int64)}, axis=2),
    case("Split", IMAGE, axis=2, opset=11, split=[4, 5], outputs=["y", "z"]),
    case("Expand", {"x": (3, 1)}, {"s": integers(2, 1, 4)}),
    case("Tile", {"x": (2, 3)}, {"r": integers(3, 2)}),
    case("Tile", {"x": (5, 2, 7, 3)}, {"r": integers(2, 3, 2, 4)}),
    case("Tile", {"x": (2, 30, 5)}, {"r": integers(1, 3, 2)}),
    case("Pad", IMAGE, {"p": integers(0, 1, 2, 0, 1, 0, -1, 3), "v": np.array(1.5, np.float32)}),
    case("Pad", MATRIX, {"p": integers(1, 3, 0, 2)}, mode="reflect"),
    case("Pad", MATRIX, {"p": integers(1, 3, 0, 2)}, mode="edge"),
    case("Pad", MATRIX, pads=[0, 1, 1, 0], value=2.0, opset=9),
    case("DepthToSpace", {"x": (2, 8, 3, 2)}, blocksize=2, mode="CRD"),
    case("SpaceToDepth", {"x": (2, 3, 4, 6)}, blocksize=2),
    case("Einsum", {"a": (2, 3, 4), "b": (2, 4, 5)}, equation="bij,bjk->bik"),
    case("Einsum", {"a": (3, 4), "b": (5,)}, equation="ij,k->kji"),
    case("Trilu", {"x": (2, 4, 5)}, {"k": np.array(1, np.int64)}, opset=14),
    case("Floor", MATRIX),
    case("Ceil", MATRIX),
    case("Round", MATRIX),
    case("Sign", MATRIX),
    case("Asinh", MATRIX),
    case("Cosh", MATRIX),
    case("Gelu", MATRIX, approximate="tanh", opset=20),
    case("Pow", MATRIX, {"e": np.array(3, np.float32)}),
    case("Pow", MATRIX, {"e": np.full((1, 2, 1, 6), 2, np.float32)}),
    case("Pow", {**MATRIX, "e": (6,)}, order=["x", "e"]),
    case("Celu", MATRIX),
    case("Celu", MATRIX, alpha=2.0),
    case("ThresholdedRelu", MATRIX),
    case("ThresholdedRelu", MATRIX, alpha=0.3),
    case("Shrink", MATRIX, lambd=0.3, bias=0.1),
    case("MeanVarianceNormalization", IMAGE),
    case("MeanVarianceNormalization", IMAGE, axes=[1, -1]),
    case(
        "RoiAlign", {**IMAGE, "r": (5, 4)}, {"i": integers(0, 1, 1, 0, 1)}, sampling_ratio=3, output_height=2, opset=16
    ),
    case(
        "RoiAlign", {**IMAGE, "r": (5, 4)}, {"i": integers(0, 1, 1, 0, 1)}, sampling_ratio=2, output_width=3, opset=10
    ),
    case(
        "DeformConv",
        {"x": (2, 4, 9, 7), "w": (6, 2, 3, 2), "o": (2, 24, 5, 4), "b": (6,), "m": (2, 12, 5, 4)},
        group=2,
        offset_group=2,
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        dilations=[1, 2],
        opset=19,
    ),
    case("DeformConv", {"x": (3, 2, 1, 6), "w": (4, 2, 1, 3), "o": (3, 6, 3, 6)}, pads=[1, 1, 1, 1], opset=19),
    case("DeformConv", {"x": (1, 3, 1, 1), "w": (2, 3, 1, 1), "o": (1, 2, 1, 1)}, opset=22),
    case("Det", {"x": (2, 3, 5, 5)}),
    case("Det", {"x": (1, 1)}),
    case("Det", {"x": (2, 2)}),
    case("Det", {"x": (7, 3, 3)}),
    case("Det", {"x": (2, 3, 4, 4)}),
    case("STFT", {"x": (2, 40, 1)}, {"s": np.array(5), "w": array(16)}, opset=17),
    case("STFT", {"x": (1, 33, 2)}, {"s": np.array(4), "w": array(8)}, onesided=0, opset=17),
    case(
        "AveragePool",
        {"x": (1, 2, 8, 9)},
        kernel_shape=[3, 4],
        strides=[2, 3],
        ceil_mode=1,
        count_include_pad=1,
        opset=19,
    ),
    case(
        "Resize",
        IMAGE,
        {"r": array(0), "s": np.array([1, 1, 0.5, 0.7], np.float32)},
        antialias=1,
        mode="linear",
        opset=18,
    ),
    case(
        "Resize",
        IMAGE,
        {"r": array(0), "s": np.array([1, 1, 0.5, 1.7], np.float32)},
        antialias=1,
        mode="cubic",
        opset=18,
    ),
    case("Einsum", {"x": (2, 3, 4, 5), "z": (1, 3, 5, 6)}, equation="...ij,...jk->...ik"),
    case("Einsum", {"x": (3, 4, 4)}, equation="...ii->...i"),
    case("Einsum", {"x": (4, 4)}, equation="ii"),
    case(
        "LSTM",
        {"x": (4, 2, 3)},
        {"w": array(2, 20, 3), "r": array(2, 20, 5), "b": array(2, 40), "p": array(2, 15)},
        order=["x", "w", "r", "b", "", "", "", "p"],
        hidden_size=5,
        direction="bidirectional",
        clip=0.75,
        opset=14,
    ),
    *(
        case(
            kind,
            {"x": (4, 2, 3)},
            {"w": array(2, gates * 5, 3), "r": array(2, gates * 5, 5), "b": array(2, 2 * gates * 5)},
            hidden_size=5,
            direction="bidirectional",
            clip=0.25,
            opset=14,
            **options,
        )
        for kind, gates, options in (
            ("LSTM", 4, {}),
            ("GRU", 3, {"linear_before_reset": 0}),
            ("GRU", 3, {"linear_before_reset": 1}),
            ("RNN", 1, {}),
            ("RNN", 1, {"activations": ["Relu", "Relu"]}),
        )
    ),
]
#: Logarithm and square root want positive numbers; the others are covered by the whole-model tests beside this one.
POSITIVE = [case("Log", MATRIX), case("Sqrt", MATRIX), case("Pow", MATRIX, {"e": np.array([0.5], np.float32)})]


def names(cases: list[Case]) -> list[str]:
    return [f"{operator}-{opset}-{number}" for number, (operator, _, _, opset, _) in enumerate(cases)]


def check(given: Case, feeds: dict[str, Array]) -> None:
    operator, inputs, constants, opset, attributes = given
    model = model_of(operator, inputs, constants, opset, **attributes)
    expected = runtime(model, feeds)[0]
    graph = load_onnx(model.SerializeToString())
    for optimize in (False, True):
        got = run_wire(*graph.to_wire(optimize), feeds)["y"]
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("given", CASES, ids=names(CASES))
def test_an_operator_computes_what_onnx_runtime_does(given: Case) -> None:
    random = np.random.default_rng(5)
    check(given, {name: random.standard_normal(shape) for name, shape in given[1].items()})


@pytest.mark.parametrize("given", POSITIVE, ids=names(POSITIVE))
def test_an_operator_of_positive_numbers_computes_what_onnx_runtime_does(given: Case) -> None:
    check(given, {name: np.random.default_rng(5).uniform(0.1, 4, shape) for name, shape in given[1].items()})


REFUSED: list[tuple[Case, str]] = [
    (case("RandomNormalLike", MATRIX), "a graph draws no numbers; sessions do"),
    (case("BatchNormalization", IMAGE, _BN, spatial=0, opset=7), "spatial=0 (statistics for each element)"),
    (case("Cast", MATRIX, to=onnx.TensorProto.COMPLEX64), "data type 14 is not supported"),
    (case("Tile", {**MATRIX, "r": (2,)}), "repeats: give the input while loading: values={'r': ...}"),
    (
        case(
            "GRU",
            {"x": (2, 1, 3)},
            {"w": array(1, 3, 3), "r": array(1, 3, 1)},
            clip=1.0,
            activations=["Sigmoid", "ScaledTanh"],
        ),
        "activation ScaledTanh is not supported",
    ),
    (case("Dropout", MATRIX, {"r": np.array(0.5, np.float32), "t": np.array(True)}), "training_mode is true"),
]


@pytest.mark.parametrize(("given", "reason"), REFUSED, ids=[reason[:40] for _, reason in REFUSED])
def test_what_is_not_supported_is_named_with_node_operator_opset_and_reason(given: Case, reason: str) -> None:
    operator, inputs, constants, opset, attributes = given
    outputs = attributes.pop("outputs", ["y"])
    model = model_of(operator, inputs, constants, opset, None, outputs, **attributes)
    if len(outputs) > 1:
        model.graph.output[0].name = outputs[1]
    with pytest.raises(UnsupportedNode) as caught:
        load_onnx(model.SerializeToString())
    error = caught.value
    assert (error.node, error.operator, error.opset) == ("node", operator, opset)
    assert str(error).startswith(f"node 'node' ({operator}, opset {opset}): {reason}")
    assert "\n" not in str(error)


@pytest.mark.parametrize("operator", ["Sign", "ThresholdedRelu", "Celu"])
def test_numbers_that_are_not_finite_zeros_and_small_ones(cache: PrimitiveProvider, operator: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 3.4e38, -3.4e38], np.float32)
    exact = x.astype(np.float64)
    wanted = {
        "Sign": np.sign(exact), "ThresholdedRelu": np.where(exact > 1, exact, 0),
        "Celu": np.maximum(exact, 0) + np.minimum(np.expm1(np.minimum(exact, 0)), 0),
    }[operator]  # fmt: skip
    model = model_of(operator, {"x": x.shape}, {}, 18)
    found = Executor(load_onnx(model.SerializeToString()), cache=cache).run(x=x)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("kind", ["float64", "float16", "int32", "int64", "uint8"])
@pytest.mark.one_in(3)
def test_signs_of_any_numbers(cache: PrimitiveProvider, kind: str) -> None:
    x = np.array([0, 1, 7, 100, 127], kind)
    x = x if kind[0] == "u" else np.concatenate([x, -x])
    if kind[0] == "f":
        tiny = np.finfo(kind).smallest_subnormal
        x = np.concatenate([x, np.array([np.nan, np.inf, -np.inf, tiny, -tiny], kind)])
    number = helper.np_dtype_to_tensor_dtype(x.dtype)
    ports = [helper.make_tensor_value_info(name, number, x.shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Sign", ["x"], ["y"])], "g", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    np.testing.assert_array_equal(Executor(load_onnx(model), cache=cache).run(x=x)["y"], np.sign(x))
    known = load_onnx(model, values={"x": x})
    np.testing.assert_array_equal(Executor(known, cache=cache).run()["y"], np.sign(x))


@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"])
@pytest.mark.parametrize("keep", [0, 1])
def test_a_dimension_of_one_element_is_reduced_without_a_kernel(operator: str, keep: int) -> None:
    model = model_of(operator, {"x": (5, 1, 4, 1)}, {"axes": integers(1, 3)}, opset=18, keepdims=keep)
    graph = load_onnx(model)
    assert all(node.kind == "reshape" for node in graph.to_ir().nodes)
    x = array(5, 1, 4, 1)
    (wanted,) = runtime(model, {"x": x})
    np.testing.assert_array_equal(interpret(graph, {"x": x})["y"], wanted)


def test_whole_numbers_are_summed_as_exponentials_in_float64(cache: PrimitiveProvider) -> None:
    node = helper.make_node("ReduceLogSumExp", ["x"], ["y"], keepdims=0)
    x, y = (helper.make_tensor_value_info(name, TensorProto.INT64, dims) for name, dims in (("x", (2, 3)), ("y", ())))
    model = helper.make_model(
        helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )
    values = np.arange(6).reshape(2, 3)
    found = Executor(load_onnx(model.SerializeToString()), cache=cache).run(x=values)["y"]
    assert found == int(np.log(np.exp(values).sum()))


@pytest.mark.parametrize("kinds", [("int16", "uint16"), ("uint32", "int32"), ("int8", "uint8"), ("bool", "int8")])
def test_bits_of_integers_are_those_of_other_integers(kinds: tuple[str, str]) -> None:
    given, wanted = (np.dtype(kind) for kind in kinds)
    values = (
        np.array([0, 1], given) if given.kind == "b" else np.array([np.iinfo(given).min, 7, np.iinfo(given).max], given)
    )
    numbers = [helper.np_dtype_to_tensor_dtype(kind) for kind in (given, wanted)]
    x, y = (
        helper.make_tensor_value_info(name, number, values.shape) for name, number in zip("xy", numbers, strict=True)
    )
    graph = helper.make_graph([helper.make_node("BitCast", ["x"], ["y"], to=numbers[1])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=10)
    found = interpret(load_onnx(model), {"x": values})["y"]
    np.testing.assert_array_equal(found, values.view(wanted))
    known = load_onnx(model, values={"x": values})
    np.testing.assert_array_equal(interpret(known, {})["y"], values.view(wanted))
