"""Results without elements, such as those of an empty batch: ONNX's own inference gives their shapes, and nothing is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..values import Value
from .call import NodeCall, Operator
from .element_types import array_type, number_of
from .folding import Array
from .model_file import onnx_package
from .tensors import Operand, array_dtype, dtype_of, shape_of

#: Elements of a known operand that shapes may depend on, such as sizes and axes.
_MOST_DATA: Final = 1024
#: Operators that count the windows of empty tensors themselves: ONNX's inference counts those that begin in the padding, too.
OWN_EMPTY: Final = frozenset({"AveragePool", "LpPool", "MaxPool"})


def has_empty(operands: Sequence[Operand | None]) -> bool:
    """Return whether an operand has no elements."""
    return any(operand is not None and 0 in operand.shape for operand in operands)


def empty_results(
    schema: Any, node: Any, opset: int, operands: Sequence[Operand | None], used: frozenset[int]
) -> tuple[Array | None, ...] | None:
    """Return the results of a node if those that are read have no elements, else None.

    ``schema`` is that of the node's operator. None also stands for results whose shapes ONNX does not infer: the operator
    computes these, or refuses them.
    """
    onnx = onnx_package()
    types: dict[str, Any] = {}
    data: dict[str, Any] = {}
    for name, operand in zip(node.input, operands, strict=True):
        if operand is None:
            continue
        types[name] = onnx.helper.make_tensor_type_proto(number_of(dtype_of(operand)), shape_of(operand))
        if not isinstance(operand, Value) and operand.size <= _MOST_DATA:
            data[name] = onnx.numpy_helper.from_array(np.ascontiguousarray(operand).reshape(operand.shape), name)
    imports = [onnx.helper.make_opsetid("", opset)]
    try:
        inferred = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=imports)
    except Exception:  # noqa: BLE001 - the inference documents none of its errors; the operator says what is wrong
        return None
    found = [_without_elements(inferred.get(name)) if name else None for name in node.output]
    return None if any(found[index] is None for index in used) else tuple(found)


def results_without_rows(call: NodeCall, operator: Operator) -> tuple[Array | None, ...] | None:
    """Return the results of an operator of `ML_DOMAIN` for tables without rows, None if its tables have some.

    ONNX infers no shapes of them. They are those of one row, without it.
    """
    first = call.operands[0] if call.operands else None
    if first is None or not first.shape or first.shape[0] != 0 or 0 in first.shape[1:]:
        return None
    rows = [
        each
        if each is None or not has_empty([each])
        else np.zeros((1, *shape_of(each)[1:]), array_dtype(dtype_of(each)))
        for each in call.operands
    ]
    found = operator(call.with_operands(*rows))
    results = found if isinstance(found, tuple) else (found,)
    return tuple(
        None if each is None else np.zeros((0, *shape_of(each)[1:]), array_dtype(dtype_of(each))) for each in results
    )


def _without_elements(inferred: Any | None) -> Array | None:
    """Return the array of an inferred type, None if it may have elements."""
    if inferred is None or not inferred.HasField("tensor_type") or not inferred.tensor_type.HasField("shape"):
        return None
    dtype = array_type(inferred.tensor_type.elem_type)
    sizes = [int(dim.dim_value) if dim.HasField("dim_value") else -1 for dim in inferred.tensor_type.shape.dim]
    if dtype is None or 0 not in sizes or min(sizes) < 0:
        return None
    return np.zeros(sizes, dtype)
