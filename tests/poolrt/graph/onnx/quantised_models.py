"""Small models with seeded weights, and their forms that ONNX Runtime's quantization tools write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from tests.references.unsigned_weights import with_unsigned_weights

Array = NDArray[Any]
IMAGE, ROWS = (1, 3, 12, 12), (2, 5, 24)
BLOCK = 16
FORMS = (
    "qdq",
    "qdq per channel",
    "operators",
    "operators of int8",
    "dynamic",
    "dynamic of int8",
    "4 bits",
    "8 bits symmetric",
)


def network() -> onnx.ModelProto:
    """Return convolutions with a residual, depthwise too, and what image networks have beside them."""
    rng = np.random.default_rng(11)
    shapes = {"w0": (16, 3, 3, 3), "w1": (16, 16, 3, 3), "w2": (16, 1, 3, 3), "w3": (8, 16, 1, 1), "w4": (24, 10)}
    weights = {n: rng.standard_normal(s) / np.sqrt(np.prod(s[1:]) if n != "w4" else 24) for n, s in shapes.items()}
    weights |= {f"b{i}": rng.standard_normal(size) / 4 for i, size in enumerate((16, 16, 16, 8, 10))}
    same: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], **same, strides=[2, 2]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1", "b1"], ["c1"], **same),
        helper.make_node("Add", ["c1", "r0"], ["a1"]),
        helper.make_node("Conv", ["a1", "w2", "b2"], ["c2"], **same, group=16),
        helper.make_node("Sigmoid", ["c2"], ["s2"]),
        helper.make_node("Mul", ["c2", "s2"], ["m2"]),
        helper.make_node("MaxPool", ["m2"], ["p2"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p2", "w3", "b3"], ["c3"], kernel_shape=[1, 1]),
        helper.make_node("LeakyRelu", ["c3"], ["l3"], alpha=0.1),
        helper.make_node("Concat", ["l3", "p2"], ["j3"], axis=1),
        helper.make_node("GlobalAveragePool", ["j3"], ["g3"]),
        helper.make_node("Flatten", ["g3"], ["f3"]),
        helper.make_node("Gemm", ["f3", "w4", "b4"], ["y"]),
    ]
    return _model(nodes, weights, IMAGE)


def perceptron() -> onnx.ModelProto:
    """Return products of three dimensions, with a residual and a normalisation as transformers have them."""
    rng = np.random.default_rng(12)
    weights = {"w0": rng.standard_normal((24, 48)) / 5, "w1": rng.standard_normal((48, 24)) / 7}
    weights |= {
        "b0": rng.standard_normal(48) / 4,
        "b1": rng.standard_normal(24) / 4,
        "one": np.ones(24),
        "zero": np.zeros(24),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["m0"]),
        helper.make_node("Add", ["m0", "b0"], ["a0"]),
        helper.make_node("Relu", ["a0"], ["r0"]),
        helper.make_node("MatMul", ["r0", "w1"], ["m1"]),
        helper.make_node("Add", ["m1", "b1"], ["a1"]),
        helper.make_node("Add", ["a1", "x"], ["s1"]),
        helper.make_node("LayerNormalization", ["s1", "one", "zero"], ["y"]),
    ]
    return _model(nodes, weights, ROWS)


def _model(nodes: list[Any], weights: dict[str, Array], dims: tuple[int, ...]) -> onnx.ModelProto:
    fixed = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "network", [source], [result], fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, dims: tuple[int, ...]) -> None:
        self._left: Iterator[dict[str, Array]] = iter([{"x": sample(dims, seed)} for seed in range(4)])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._left, None)


def sample(dims: tuple[int, ...], seed: int) -> Array:
    """Return an input of a seed."""
    return np.random.default_rng(100 + seed).standard_normal(dims).astype(np.float32)


def quantise(model: onnx.ModelProto, form: str, folder: Path) -> onnx.ModelProto:
    """Return the quantised form of a model."""
    source, target = folder / "source.onnx", folder / "target.onnx"
    onnx.save(model, source)
    dims = tuple(each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim)
    if " bits" in form:
        return _with_few_bits(model, int(form[0]), form.endswith("symmetric"))
    if form.startswith("dynamic"):
        kind = QuantType.QInt8 if form.endswith("int8") else QuantType.QUInt8
        quantize_dynamic(source, target, weight_type=kind)
    else:
        quantize_static(
            source,
            target,
            _Samples(dims),
            quant_format=QuantFormat.QDQ if form.startswith("qdq") else QuantFormat.QOperator,
            activation_type=QuantType.QInt8 if form.endswith("int8") else QuantType.QUInt8,
            weight_type=QuantType.QUInt8 if form == "operators" else QuantType.QInt8,
            per_channel=form.endswith("per channel"),
        )
    return onnx.load(target)


def _with_few_bits(model: onnx.ModelProto, bits: int, symmetric: bool) -> onnx.ModelProto:
    """Return a model whose products have weights of a few bits, as ONNX Runtime's quantizer writes them."""
    found: onnx.ModelProto = onnx.ModelProto.FromString(model.SerializeToString())
    fixed = {each.name: each for each in found.graph.initializer}
    for node in found.graph.node:
        if node.op_type != "MatMul" or node.input[1] not in fixed:
            continue
        name = node.input[1]
        wide = numpy_helper.to_array(fixed[name]).T
        columns, depth = wide.shape
        blocks = np.pad(wide, ((0, 0), (0, -depth % BLOCK))).reshape(columns, -1, BLOCK)
        most = (1 << bits) - 1
        low, high = blocks.min(-1, keepdims=True), blocks.max(-1, keepdims=True)
        if symmetric:
            high = np.maximum(-low, high)
            low = -high
        scale = (high - low) / most
        zero = np.full(low.shape, (most + 1) // 2) if symmetric else np.clip(np.rint(-low / scale), 0, most)
        numbers = np.clip(np.rint(blocks / scale + zero), 0, most).astype(np.uint8)
        arrays = {f"{name}_q": _packed(numbers, bits), f"{name}_scales": scale[:, :, 0].astype(np.float32)}
        if not symmetric:
            arrays[f"{name}_points"] = _packed(zero[:, :, 0].astype(np.uint8), bits)
        found.graph.initializer.extend(numpy_helper.from_array(array, key) for key, array in arrays.items())
        attributes = {"K": depth, "N": columns, "bits": bits, "block_size": BLOCK}
        inputs, outputs = [node.input[0], *arrays], list(node.output)
        node.CopyFrom(helper.make_node("MatMulNBits", inputs, outputs, domain="com.microsoft", **attributes))
    found.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return found


def _packed(numbers: Array, bits: int) -> Array:
    """Return numbers side by side in bytes, the first in the lowest bits."""
    count = 8 // bits
    wide = np.pad(numbers, (*((0, 0),) * (numbers.ndim - 1), (0, -numbers.shape[-1] % count)))
    parts = wide.reshape(*wide.shape[:-1], -1, count) << (bits * np.arange(count, dtype=np.uint8))
    return np.asarray(parts.sum(-1), np.uint8)


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Return a session of one thread that computes each node as it is, with exact sums of products of integers."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    text = with_unsigned_weights(model).SerializeToString()
    return onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
