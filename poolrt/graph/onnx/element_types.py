"""Data types of ONNX and of graphs: which a graph has, and their names in messages."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from poolrt.workers.desc import LIMITS as TYPE_LIMITS
from poolrt.workers.desc import WRAPPING as WRAPPING_TYPES
from poolrt.workers.desc import type_name

from .model_file import onnx_package

#: TensorProto.DataType -> the name of the data type in graphs (that of NumPy's type, or bfloat16).
GRAPH_TYPES: Final = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
}  # fmt: skip
#: The same of types that known arrays have, but tensors of a graph do not: names of ml_dtypes' types, one byte an element.
STORED_TYPES: Final = {
    17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4",
    23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2",
}  # fmt: skip
#: Integers of less than a byte among them.
SUB_BYTES: Final = ("uint4", "int4", "uint2", "int2")
FLOATS: Final = ("float64", "float32", "float16", "bfloat16")
#: ``int64`` and so on of a graph -> the least and the greatest number.
LIMITS: Final = {type_name(short): limits for short, limits in TYPE_LIMITS.items()}
#: Integers whose sums, differences and products wrap in a graph too.
WRAPPING: Final = tuple(map(type_name, WRAPPING_TYPES))
#: Names in the types of ONNX's schemas that differ from NumPy's.
_SCHEMA_NAMES: Final = {
    "float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz", "float4e2m1": "float4_e2m1fn",
    "float8e8m0": "float8_e8m0fnu",
}  # fmt: skip


@cache
def array_type(number: int) -> np.dtype[Any] | None:
    """Return the type of known arrays of a TensorProto.DataType; None for one that arrays do not have."""
    if number not in GRAPH_TYPES and number not in STORED_TYPES:
        return None
    found: np.dtype[Any] = onnx_package().helper.tensor_dtype_to_np_dtype(number)
    return found


def number_of(name: str) -> int:
    """Return the TensorProto.DataType of a data type's name in graphs or of known arrays."""
    for number, known in (*GRAPH_TYPES.items(), *STORED_TYPES.items()):
        if known == name:
            return number
    raise ValueError(f"data type {name} is none of ONNX's")


def label(number: int) -> str:
    """Return ONNX's name of a TensorProto.DataType, its number if it has none."""
    items = onnx_package().TensorProto.DataType.items()
    return next((name for name, each in items if each == number), str(number))


def of_schema(text: str) -> str | None:
    """Return the name of a data type in a schema, such as ``tensor(float)``; None if it is no tensor's."""
    if not (text.startswith("tensor(") and text.endswith(")")):
        return None
    name = text[7:-1]
    return _SCHEMA_NAMES.get(name, name)
