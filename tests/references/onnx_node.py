"""One-node models for ONNX Runtime, which is an independent implementation of many operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

Array = NDArray[Any]


def run_node(kind: str, inputs: list[Array], **attributes: Any) -> Array:
    """Return what ONNX Runtime computes for one node of opset 19, its first output."""
    return run_node_for_all(kind, inputs, 1, **attributes)[0]


def run_node_for_all(
    kind: str, inputs: Sequence[Array | None], outputs: int, opset: int = 19, **attributes: Any
) -> list[Array]:
    """Return all outputs of one node; inputs that are None are left out. Arrays are passed as float32."""
    fed = {f"x{i}": array.astype(np.float32) for i, array in enumerate(inputs) if array is not None}
    described = [helper.make_tensor_value_info(name, TensorProto.FLOAT, a.shape) for name, a in fed.items()]
    names = [f"x{i}" if array is not None else "" for i, array in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(kind, names, results, **attributes)
    typed = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    graph = helper.make_graph([node], kind, described, typed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, fed)]
