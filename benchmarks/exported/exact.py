"""What a quantised model computes in float64, as a judge between two results that differ by more than a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator


def in_float64(path: Path, feeds: dict[str, Any]) -> dict[str, Any] | None:
    """Return the outputs as ONNX's evaluator computes them with float64 for float32; None for a model that it does not have."""
    model = onnx.load(path)
    graph = model.graph
    for tensor in (
        *graph.initializer,
        *(each.t for node in graph.node for each in node.attribute if each.name == "value"),
    ):
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for port in (*graph.input, *graph.output, *graph.value_info):
        if port.type.tensor_type.elem_type == TensorProto.FLOAT:
            port.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        # ONNX Runtime's tools write its own domain for 16 bits; since opset 21, ONNX has the same.
        if node.domain == "com.microsoft" and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            node.domain = ""
        for each in node.attribute:
            if each.name == "to" and each.i == TensorProto.FLOAT:
                each.i = TensorProto.DOUBLE
    wide = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in feeds.items()}
    try:
        evaluator = ReferenceEvaluator(model)
        found = zip(evaluator.output_names, evaluator.run(None, wide), strict=True)
    except Exception:  # noqa: BLE001 -- then there is no judge
        return None
    return {name: array.astype(np.float32) if array.dtype == np.float64 else array for name, array in found}
