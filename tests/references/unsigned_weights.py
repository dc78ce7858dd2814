"""Models with weights of int8, in a form whose sums ONNX Runtime computes exactly on every processor.

Without VNNI, ONNX Runtime multiplies bytes without sign by bytes with sign by ``vpmaddubsw``, which saturates the sum of two
products at 16 bits: 255 * 127 * 2 becomes 32767. Its products of bytes without sign are exact, and so are those of bytes
with sign. Weights and zero points that are both 128 larger, without sign, define the same result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OFFSET: Final = "unsigned/128"
_NO_POINT: Final = "unsigned/point"
#: Operator -> its source, the source's zero point (-1: the operator quantises the source, without a sign), and pairs of
#: weights and their zero points.
_OPERANDS: Final[dict[str, tuple[int, int, tuple[tuple[int, int], ...]]]] = {
    "MatMulInteger": (0, 2, ((1, 3),)),
    "ConvInteger": (0, 2, ((1, 3),)),
    "QLinearConv": (0, 2, ((3, 5),)),
    "QLinearMatMul": (0, 2, ((3, 5),)),
    "QGemm": (0, 2, ((3, 5),)),
    "QAttention": (0, 6, ((1, 7),)),
    "MatMulIntegerToFloat": (0, 4, ((1, 5),)),
    "DynamicQuantizeMatMul": (0, -1, ((1, 3),)),
    "DynamicQuantizeLSTM": (0, -1, ((1, 9), (2, 11))),
}


def with_unsigned_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with weights of uint8 where a product multiplies uint8 by int8.

    Limitation: weights are initializers or inputs of the graph; products in subgraphs stay as they are.
    """
    found: onnx.ModelProto = onnx.ModelProto.FromString(model.SerializeToString())
    graph = found.graph
    types = {each.name: each.data_type for each in graph.initializer}
    types |= {each.name: each.type.tensor_type.elem_type for each in graph.input}
    shifted: dict[str, str] = {}
    for node in graph.node:
        for weights, point in _signed_weights(node, types):
            node.input.extend([""] * (point + 1 - len(node.input)))
            for place in (weights, point):
                name = node.input[place]
                node.input[place] = shifted.setdefault(name, f"unsigned/{name}") if name else _NO_POINT
    fixed = {each.name: each for each in graph.initializer}
    for name, result in shifted.items():
        if name in fixed:
            wide = numpy_helper.to_array(fixed[name]).astype(np.int16) + 128
            graph.initializer.append(numpy_helper.from_array(wide.astype(np.uint8), result))
    before = [each for name, result in shifted.items() if name not in fixed for each in _shift(name, result)]
    nodes = [*before, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.append(numpy_helper.from_array(np.array(128, np.int32), _OFFSET))
    graph.initializer.append(numpy_helper.from_array(np.array(128, np.uint8), _NO_POINT))
    return found


def _signed_weights(node: onnx.NodeProto, types: dict[str, int]) -> Iterator[tuple[int, int]]:
    """Yield the places of weights of int8 and of their zero points, if the source has no sign."""
    source, point, pairs = _OPERANDS.get(node.op_type, (0, -1, ()))
    described = [node.input[place] for place in (source, point) if 0 <= place < len(node.input)]
    if point >= 0 and any(types.get(name) == TensorProto.INT8 for name in described):
        return
    for weights, its_point in pairs:
        if types.get(node.input[weights]) == TensorProto.INT8:
            yield weights, its_point


def _shift(name: str, result: str) -> list[onnx.NodeProto]:
    """Return nodes that add 128."""
    return [
        helper.make_node("Cast", [name], [f"{result}/wide"], to=TensorProto.INT32),
        helper.make_node("Add", [f"{result}/wide", _OFFSET], [f"{result}/sum"]),
        helper.make_node("Cast", [f"{result}/sum"], [result], to=TensorProto.UINT8),
    ]
