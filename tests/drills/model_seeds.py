"""Small ONNX models that import: between them they use every operator that is folded, and each form of tensor and of graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.poolrt.graph.onnx.transformers import bert, gpt2

Array = NDArray[Any]
node = helper.make_node


@cache
def seeds() -> tuple[bytes, ...]:
    """Return the serialised models."""
    made = (
        *(_images(), _perceptron(), _shapes(), _filled(), _pointwise(), _windows(), _old(), _typed()),
        *(_loops(), _choices(), _sequences(), bert(3), gpt2(3)),
    )
    return tuple(model.SerializeToString() for model in made)


def _model(
    nodes: Sequence[Any],
    dims: Sequence[int | str],
    constants: dict[str, Array],
    opset: int = 13,
    more: Sequence[Any] = (),
) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name, sizes in (("x", dims), ("y", None)))
    tensors = [*(numpy_helper.from_array(value, name) for name, value in constants.items()), *more]
    graph = helper.make_graph(nodes, "seed", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _floats(*dims: int) -> Array:
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


def _integers(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def _images() -> onnx.ModelProto:
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2], group=1, dilations=[1, 1]),
        node("BatchNormalization", ["c", "s", "s", "s", "v"], ["n"], epsilon=1e-3),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
        node("GlobalAveragePool", ["m"], ["g"]),
        node("Flatten", ["g"], ["f"], axis=1),
        node("Gemm", ["f", "k"], ["d"], transB=1, alpha=0.5),
        node("Softmax", ["d"], ["y"], axis=-1),
    ]
    weights = {
        "w": _floats(4, 3, 3, 3),
        "b": _floats(4),
        "s": _floats(4),
        "v": np.ones(4, np.float32),
        "k": _floats(5, 4),
    }
    return _model(nodes, ("N", 3, 8, 8), weights)


def _perceptron() -> onnx.ModelProto:
    nodes = [
        node("Gemm", ["x", "w", "b"], ["h"], alpha=0.5, beta=2.0, transA=0, transB=0),
        node("Sigmoid", ["h"], ["a"]),
        node("MatMul", ["a", "w2"], ["p"]),
        node("Add", ["p", "b2"], ["q"]),
        node("LogSoftmax", ["q"], ["y"], axis=1),
    ]
    return _model(nodes, (2, 6), {"w": _floats(6, 4), "b": _floats(1), "w2": _floats(4, 3), "b2": _floats(3)}, 11)


def _shapes() -> onnx.ModelProto:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "axes"], ["n1"]),
        node("Slice", ["s", "one", "many", "axes", "one"], ["t"]),
        node("Mul", ["t", "one"], ["t1"]),
        node("Div", ["t1", "one"], ["t2"]),
        node("Sub", ["t2", "axes"], ["t3"]),
        node("Cast", ["t3"], ["t4"], to=TensorProto.INT64),
        node("Squeeze", ["n1", "axes"], ["n2"]),
        node("Reshape", ["n2", "one"], ["n3"]),
        node("Concat", ["n3", "t4"], ["d"], axis=0),
        node("Reshape", ["x", "d"], ["y"]),
    ]
    numbers = {"zero": np.array(0, np.int64), "axes": _integers(0), "one": _integers(1), "many": _integers(9)}
    return _model(nodes, (2, 3, 4), numbers)


def _filled() -> onnx.ModelProto:
    nodes = [
        node("ConstantOfShape", ["s"], ["z"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [2.0])),
        node("Mul", ["z", "z"], ["q"]),
        node("Neg", ["q"], ["m"]),
        node("Pow", ["m", "two"], ["p"]),
        node("Transpose", ["p"], ["t"], perm=[1, 0]),
        node("Reshape", ["t", "r"], ["f"]),
        node("Concat", ["f", "f"], ["c"], axis=1),
        node("Cast", ["c"], ["h"], to=TensorProto.FLOAT16),
        node("Cast", ["h"], ["k"], to=TensorProto.FLOAT),
        node("Add", ["x", "k"], ["y"]),
    ]
    numbers = {"s": _integers(3, 4), "two": np.array(2, np.float32), "r": _integers(2, -1)}
    return _model(nodes, (2, 12), numbers)


def _pointwise() -> onnx.ModelProto:
    nodes = [
        node("LeakyRelu", ["x"], ["a"], alpha=0.1),
        node("Clip", ["a", "low", "high"], ["b"]),
        node("PRelu", ["b", "slope"], ["c"]),
        node("Selu", ["c"], ["d"], alpha=1.5, gamma=1.1),
        node("Softsign", ["d"], ["e"]),
        node("Gelu", ["e"], ["f"], approximate="none"),
        node("HardSigmoid", ["f"], ["g"], alpha=0.2, beta=0.5),
        node("Mean", ["g", "x"], ["h"]),
        node("Max", ["h", "x", "slope"], ["i"]),
        node("Reciprocal", ["i"], ["j"]),
        node("Pow", ["j", "two"], ["k"]),
        node("Dropout", ["k"], ["l"]),
        node("Sum", ["l", "x"], ["y"]),
    ]
    numbers = {name: np.array(value, np.float32) for name, value in (("low", -1.0), ("high", 1.0), ("two", 2.0))}
    return _model(nodes, (2, 3, 4), {**numbers, "slope": _floats(3, 1)}, 20)


def _windows() -> onnx.ModelProto:
    # The weights are large enough to be taken out of the model before it is parsed.
    nodes = [
        node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], auto_pad="SAME_LOWER", strides=[1, 1]),
        node("LRN", ["c"], ["l"], size=5, alpha=1e-4, beta=0.75, bias=1.0),
        node("AveragePool", ["l"], ["a"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        node("ReduceMean", ["a"], ["r"], axes=[2, 3], keepdims=0),
        node("MatMul", ["r", "m"], ["y"]),
    ]
    return _model(nodes, (1, 16, 9, 9), {"w": _floats(16, 16, 3, 3), "m": _floats(16, 80)})


def _old() -> onnx.ModelProto:
    nodes = [
        node("Add", ["x", "row"], ["a"], broadcast=1, axis=1),
        node("Clip", ["a"], ["b"], min=-1.0, max=1.0),
        node("Slice", ["row"], ["part"], axes=[0], starts=[0], ends=[1]),
        node("Unsqueeze", ["part"], ["wide"], axes=[0, 2]),
        node("Mul", ["b", "b"], ["c"]),
        node("Concat", ["c", "c"], ["d"]),
        node("Reshape", ["d"], ["e"], shape=[0, -1]),
        node("Softmax", ["e"], ["y"], axis=1),
    ]
    return _model(nodes, (2, 3, 4), {"row": _floats(3)}, 3)


def _loops() -> onnx.ModelProto:
    scalar = helper.make_tensor_value_info
    passes = helper.make_graph(
        [node("Add", ["v", "v"], ["w"]), node("Identity", ["on"], ["on2"]), node("Relu", ["w"], ["part"])],
        "body",
        [scalar("i", TensorProto.INT64, []), scalar("on", TensorProto.BOOL, []), scalar("v", TensorProto.FLOAT, None)],
        [
            scalar("on2", TensorProto.BOOL, []),
            scalar("w", TensorProto.FLOAT, None),
            scalar("part", TensorProto.FLOAT, None),
        ],
    )
    steps = helper.make_graph(
        [node("Add", ["state", "element"], ["next"]), node("Mul", ["next", "c"], ["out"])],
        "body",
        [scalar("state", TensorProto.FLOAT, None), scalar("element", TensorProto.FLOAT, None)],
        [scalar("next", TensorProto.FLOAT, None), scalar("out", TensorProto.FLOAT, None)],
    )
    branches = [
        helper.make_graph(
            [node(operator, ["collected"], ["chosen"])], "branch", [], [scalar("chosen", TensorProto.FLOAT, None)]
        )
        for operator in ("Tanh", "Exp")
    ]
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Loop", ["n", "", "x"], ["last", "parts"], body=passes),
        node("Scan", ["first", "parts"], ["final", "collected"], body=steps, num_scan_inputs=1, scan_output_axes=[-1]),
        node("Less", ["n", "many"], ["small"]),
        node("If", ["small"], ["part"], then_branch=branches[0], else_branch=branches[1]),
        node("own", ["part", "final"], ["y"], domain="local", alpha=0.5),
    ]
    tensors = {"zero": np.array(0, np.int64), "many": np.array(9, np.int64), "first": _floats(3, 4), "c": _floats(4)}
    made = _model(nodes, (3, 4), tensors, 17)
    body = [
        node("LeakyRelu", ["a"], ["c"]),
        node("Celu", ["b"], ["d"], alpha=2.0),
        node("ReduceSum", ["c"], ["e"], keepdims=0),
        node("Mul", ["d", "e"], ["f"]),
    ]
    body[0].attribute.add(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    opsets = [helper.make_opsetid("", 17)]
    made.functions.append(helper.make_function("local", "own", ["a", "b"], ["f"], body, opsets, ["alpha"]))
    made.opset_import.append(helper.make_opsetid("local", 1))
    return made


def _choices() -> onnx.ModelProto:
    nodes = [
        node("TopK", ["x", "k"], ["t", "ti"], axis=1),
        node("ArgMax", ["t"], ["a"], axis=-1, keepdims=0),
        node("OneHot", ["a", "depth", "both"], ["o"], axis=1),
        node("CumSum", ["o", "zero"], ["cs"], exclusive=1, reverse=1),
        node("Greater", ["cs", "half"], ["g"]),
        node("Where", ["g", "cs", "half"], ["w"]),
        node("ScatterElements", ["w", "places", "news"], ["se"], axis=0, reduction="add"),
        node("ScatterND", ["se", "places2", "news2"], ["sn"]),
        node("Pad", ["sn", "pads", "half"], ["p"], mode="constant"),
        node("Pad", ["p", "pads"], ["p2"], mode="reflect"),
        node("Unsqueeze", ["p2", "front"], ["image"]),
        node("Resize", ["image", "", "scales"], ["rs"], mode="linear", coordinate_transformation_mode="asymmetric"),
        node("QuantizeLinear", ["rs", "half", "point"], ["q"]),
        node("DequantizeLinear", ["q", "half", "point"], ["dq"]),
        node("Squeeze", ["dq", "front"], ["flat"]),
        node("Split", ["flat"], ["one", "two"], axis=0, num_outputs=2),
        node("Tile", ["one", "twice"], ["ti2"]),
        node("Einsum", ["ti2", "ti2"], ["e"], equation="ij,kj->ik"),
        node("Trilu", ["e"], ["tr"], upper=0),
        node("GatherND", ["tr", "places2"], ["gn"]),
        node("Mod", ["gn", "half"], ["y"], fmod=1),
    ]
    numbers = {
        "k": _integers(3), "depth": np.array(4, np.int64), "both": np.array([0, 1], np.float32), "zero": np.array(0, np.int64),
        "half": np.array(0.5, np.float32), "places": np.array([[0, 1, 0, 1]], np.int64), "news": _floats(1, 4),
        "places2": np.array([[0, 1], [1, 0]], np.int64), "news2": _floats(2), "pads": _integers(1, 0, 0, 1),
        "front": _integers(0, 1), "scales": np.array([1, 1, 2, 1.5], np.float32), "point": np.array(3, np.uint8),
        "twice": _integers(2, 1),
    }  # fmt: skip
    return _model(nodes, (2, 6), numbers, 18)


def _sequences() -> onnx.ModelProto:
    nodes = [
        node("LSTM", ["x", "w", "r", "b"], ["l", "h", "c"], hidden_size=2, direction="bidirectional"),
        node("Transpose", ["l"], ["t"], perm=[2, 0, 1, 3]),
        node("Reshape", ["t", "dims"], ["rows"]),
        node("GRU", ["rows", "w2", "r2"], ["g"], hidden_size=2, linear_before_reset=1),
        node("Squeeze", ["g", "one"], ["s"]),
        node("LayerNormalization", ["s", "scale", "scale"], ["ln"], axis=-1),
        node("Attention", ["ln", "ln", "ln"], ["at"], q_num_heads=1, kv_num_heads=1, is_causal=1),
        node("ReduceLogSumExp", ["at", "one"], ["le"], keepdims=1),
        node("ConvTranspose", ["le", "cw"], ["ct"], strides=[2], pads=[1, 0], output_padding=[1]),
        node("Cast", ["ct"], ["f64"], to=TensorProto.DOUBLE),
        node("Sin", ["f64"], ["sin"]),
        node("Cast", ["sin"], ["i64"], to=TensorProto.INT64),
        node("BitShift", ["i64", "shift"], ["bs"], direction="LEFT"),
        node("Cast", ["bs"], ["y"], to=TensorProto.FLOAT),
    ]
    weights = {
        "w": _floats(2, 8, 3), "r": _floats(2, 8, 2), "b": _floats(2, 16), "w2": _floats(1, 6, 4), "r2": _floats(1, 6, 2),
        "dims": _integers(2, -1, 4), "one": _integers(1), "scale": _floats(2), "cw": _floats(1, 2, 3),
        "shift": np.array(2, np.int64),
    }  # fmt: skip
    return _model(nodes, (3, 2, 3), weights, 23)


def _typed() -> onnx.ModelProto:
    more = [
        helper.make_tensor("f", TensorProto.FLOAT, [3], [0.5, 1.5, 2.5]),
        helper.make_tensor("h", TensorProto.FLOAT16, [3], [1.0, 2.0, 3.0]),
        helper.make_tensor("b", TensorProto.BFLOAT16, [3], [1.0, 2.0, 3.0]),
        helper.make_tensor("i", TensorProto.INT64, [2], [1, 0]),
        helper.make_tensor("t", TensorProto.BOOL, [2], [1, 0]),
    ]
    nodes = [
        node("Constant", [], ["k"], value=numpy_helper.from_array(_floats(3))),
        node("Constant", [], ["n"], value_floats=[1.0, 2.0, 3.0]),
        node("Constant", [], ["o"], value_ints=[1, 0]),
        node("Gather", ["f", "i"], ["g"], axis=0),
        node("Gather", ["g", "o"], ["g2"], axis=-1),
        node("Cast", ["h"], ["h1"], to=TensorProto.FLOAT),
        node("Cast", ["b"], ["b1"], to=TensorProto.FLOAT),
        node("Cast", ["t"], ["t1"], to=TensorProto.INT32),
        node("Add", ["h1", "k"], ["s"]),
        node("Sub", ["s", "n"], ["s1"]),
        node("Div", ["s1", "f"], ["s2"]),
        node("Identity", ["s2"], ["s3"]),
        node("Mul", ["x", "s3"], ["m"]),
        node("Add", ["m", "b1"], ["y"]),
    ]
    return _model(nodes, (2, 3), {}, 13, more)
