"""Operators that prepare the columns of a table: scaled, replaced, chosen, and categories as columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from ...call import NodeCall, Operator
from ...element_types import FLOATS
from ...folding import Array
from ...model_file import tensor
from ...tensors import Operand, array_dtype, dtype_of, shape_of

#: The least norm that rows are divided by is 1: rows of zeros stay zeros.
_NORMS: Final[Mapping[str, float]] = {"L1": 1.0, "L2": 2.0}


def floats(call: NodeCall, index: int = 0) -> Operand:
    """Return an operand of numbers as float32."""
    return call.math.cast(call.tensor(index), "float32")


def extract(call: NodeCall) -> Operand:
    """Return chosen columns; a row of numbers is a table of one row."""
    data = call.tensor(0)
    if len(data.shape) == 1:
        data = call.math.reshape(data, (1, -1))
    return call.math.take(data, call.math.reshape(call.tensor(1), (-1,)), len(data.shape) - 1)


def binarize(call: NodeCall) -> Operand:
    """Return 1 for numbers above the threshold, and 0 for others."""
    m, source = call.math, call.tensor(0)
    return m.cast(m.binary(source, m.number(call.number("threshold", 0.0), source), "gt"), dtype_of(source))


def vectorize(call: NodeCall) -> Operand:
    """Join the columns of tables, each of which is cut, or filled with zeros, to a number of columns."""
    m, parts = call.math, list[Operand]()
    wanted = call.integers("inputdimensions", most=None)
    if len(wanted) != len(call.operands):
        raise call.malformed(f"inputdimensions: expect {len(call.operands)} numbers, got {len(wanted)}")
    for index, columns in enumerate(wanted):
        part = floats(call, index)
        part = part if len(part.shape) > 1 else m.reshape(part, (-1, 1))
        given = shape_of(part)[1]
        if columns < 1:
            raise call.malformed(f"inputdimensions: expect numbers above 0, got {columns}")
        if columns > given:
            part = m.pad_constant(part, (0, 0), (0, columns - given), np.zeros((), np.float32))
        parts.append(m.slice(part, [0], [columns], [1], [1]))
    return m.concat(parts, 1)


def impute(call: NodeCall) -> Operand:
    """Replace a number, or what is no number, by one for each column."""
    m, source = call.math, call.tensor(0)
    if dtype_of(source) in FLOATS:
        instead, replaced = call.numbers("imputed_value_floats"), call.number("replaced_value_float", 0.0)
    else:
        instead, replaced = call.integers("imputed_value_int64s", most=None), call.integer("replaced_value_int64", 0)
    is_missing = m.binary(source, source, "ne")
    if not math.isnan(replaced):
        is_missing = m.binary(source, m.number(replaced, source), "eq")
    values: Array = np.asarray(instead, array_dtype(dtype_of(source)))
    if values.size not in (1, shape_of(source)[-1]):
        raise call.malformed(f"{values.size} values for {shape_of(source)[-1]} columns")
    return m.select(is_missing, m.expand(values, shape_of(source)), source)


def normalize(call: NodeCall) -> Operand:
    """Divide rows by their greatest number, or by their norm of order 1 or 2."""
    m, source, norm = call.math, floats(call), call.text("norm", "MAX")
    axes = (len(source.shape) - 1,)
    if norm == "MAX":
        size = m.reduce(source, "max", axes, True)
    elif norm in _NORMS:
        size = m.reduce(source, "norm_lp_sum", axes, True, _NORMS[norm])
    else:
        raise call.malformed(f"norm: expect MAX, L1 or L2, got {norm!r}")
    is_zero = m.binary(size, m.number(0, size), "eq")
    return m.binary(source, m.select(is_zero, m.expand(m.number(1, size), shape_of(size)), size), "div")


def scale(call: NodeCall) -> Operand:
    """Subtract an offset and multiply by a scale, of each column or of all."""
    m, found = call.math, floats(call)
    columns = shape_of(found)[-1]
    for name, algorithm in (("offset", "sub"), ("scale", "mul")):
        if name in call.attrs:
            numbers: Array = np.asarray(call.numbers(name), np.float32)
            if numbers.size not in (1, columns):
                raise call.malformed(f"{name}: {numbers.size} numbers for {columns} columns")
            found = m.binary(found, numbers, algorithm)
    return found


def encode_columns(call: NodeCall) -> Operand:
    """Return a column of 0 and 1 for each category, behind the dimensions of the source."""
    m, source = call.math, call.tensor(0)
    if "cats_strings" in call.attrs:
        raise call.unsupported("categories that are texts; only whole numbers are supported")
    if not call.integer("zeros", 1):
        raise call.unsupported("zeros=0: a run cannot raise an error for a number that is no category")
    categories: Array = np.asarray(call.integers("cats_int64s", most=None), np.int64)
    # Categories are whole numbers: fractions of the source are cut off, as in ONNX Runtime.
    whole = m.unsqueeze(m.cast(source, "int64"), (len(source.shape),))
    return m.cast(m.binary(whole, categories, "eq"), "float32")


def encode_labels(call: NodeCall) -> Operand:
    """Replace each number that is a key by its value, and any other one by a default."""
    source = call.tensor(0)
    keys, values = _listed(call, "keys"), _listed(call, "values")
    if keys.size != values.size or keys.dtype != array_dtype(dtype_of(source)):
        raise call.malformed(f"{keys.size} keys of {keys.dtype} for {values.size} values and {dtype_of(source)}")
    usual: Array = np.zeros((), values.dtype)
    if "default_tensor" in call.attrs:
        usual = tensor(call.proto("default_tensor"), None).reshape(())
    elif values.dtype == np.int64:
        usual = np.asarray(call.integer("default_int64", -1), np.int64)
    elif values.dtype == np.float32:
        usual = np.asarray(call.number("default_float", -0.0), np.float32)
    return choose_value(call, source, keys, values, usual)


def choose_value(call: NodeCall, source: Operand, keys: Array, values: Array, usual: Array) -> Operand:
    """Return for each number the value of the first key that it is equal to, else ``usual``; a key may be NaN."""
    m = call.math
    wide = m.unsqueeze(source, (len(source.shape),))
    found = m.binary(wide, keys, "eq")
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        found = m.binary(found, m.binary(m.binary(wide, wide, "ne"), np.isnan(keys), "and"), "or")
    # A place behind the last key stands for no key.
    places = m.select(found, m.expand(np.arange(keys.size, dtype=np.int64), found.shape),
                      m.expand(np.asarray(keys.size, np.int64), found.shape))  # fmt: skip
    first = m.reduce(places, "min", (len(found.shape) - 1,), False)
    return m.take(np.append(values, usual.astype(values.dtype)), first, 0)


def _listed(call: NodeCall, what: str) -> Array:
    """Return the keys or the values of a table of labels."""
    if f"{what}_tensor" in call.attrs:
        found = tensor(call.proto(f"{what}_tensor"), None)
        if found.dtype.kind not in "iuf":
            raise call.unsupported(
                f"{what} that are texts; only numbers are supported, and values of texts in sessions"
            )
        return found.reshape(-1)
    if f"{what}_int64s" in call.attrs:
        return np.asarray(call.integers(f"{what}_int64s", most=None), np.int64)
    if f"{what}_floats" in call.attrs:
        return np.asarray(call.numbers(f"{what}_floats"), np.float32)
    raise call.unsupported(f"{what} that are texts; only numbers are supported, and values of texts in sessions")


OPERATORS: Final[Mapping[str, Operator]] = {
    "ArrayFeatureExtractor": extract,
    "Binarizer": binarize,
    "FeatureVectorizer": vectorize,
    "Imputer": impute,
    "LabelEncoder": encode_labels,
    "Normalizer": normalize,
    "OneHotEncoder": encode_columns,
    "Scaler": scale,
}
