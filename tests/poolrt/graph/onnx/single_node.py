"""Models of one node, and what ONNX Runtime computes from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]


def model_of(
    operator: str,
    inputs: Mapping[str, Sequence[int | str | None]],
    constants: Mapping[str, Array] | None = None,
    opset: int = 13,
    order: Sequence[str] | None = None,
    outputs: Sequence[str] = ("y",),
    ir_version: int = 8,
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model with one node named ``node``; it reads ``order``, or the inputs and then the constants."""
    fixed = dict(constants or {})
    node = helper.make_node(operator, list(order or (*inputs, *fixed)), list(outputs), "node", **attributes)
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    results = [helper.make_tensor_value_info(outputs[0], TensorProto.FLOAT, None)]
    initializers = [numpy_helper.from_array(value, name) for name, value in fixed.items()]
    graph = helper.make_graph([node], "single", declared, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def runtime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Return what ONNX Runtime computes, in the order of the model's outputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = [each.name for each in session.get_outputs()]
    given = {each.name: feeds[each.name].astype(np.float32) for each in session.get_inputs()}
    results: list[Array] = session.run(wanted, given)
    return results
