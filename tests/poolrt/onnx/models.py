"""Small models of sessions' tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import poolrt.onnx
from poolrt.workers.primitives.provider import PrimitiveProvider

Array = NDArray[Any]


def model(
    nodes: list[Any],
    inputs: Mapping[str, tuple[int, Any]],
    outputs: Mapping[str, tuple[int, Any]],
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """Return a model of nodes; inputs and outputs are types and shapes by name."""
    taken, given = (
        [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in ports.items()]
        for ports in (inputs, outputs)
    )
    weights = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "small", taken, given, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, producer_name="tests")


def sums() -> onnx.ModelProto:
    """Return ``s = x + y`` and ``p = x * w``, whose batch is open."""
    kind = TensorProto.FLOAT
    ports = {"x": (kind, ["batch", 3]), "y": (kind, ["batch", 3])}
    nodes = [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("Mul", ["x", "w"], ["p"])]
    outputs = {"s": (kind, ["batch", 3]), "p": (kind, ["batch", 3])}
    made = model(nodes, ports, outputs, {"w": np.array([1, 2, 4], np.float32)})
    made.metadata_props.add(key="author", value="tests")
    return made


def session(source: Any, cache: PrimitiveProvider | None, **others: Any) -> poolrt.onnx.InferenceSession:
    """Return a session on one thread."""
    options = others.pop("sess_options", None) or poolrt.onnx.SessionOptions()
    options.intra_op_num_threads = 1
    return poolrt.onnx.InferenceSession(source, options, cache=cache, **others)


def rival(source: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Return ONNX Runtime's session on one thread, which writes no lines about errors."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(source.SerializeToString(), options, providers=["CPUExecutionProvider"])
