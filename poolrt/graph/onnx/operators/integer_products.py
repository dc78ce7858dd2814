"""Matrix products of 8-bit integers, less their zero points, into int32 or float32."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ...values import Value
from ..call import NodeCall
from ..tensors import Operand, dtype_of

#: Zero point of uint8 as int8.
_SHIFT = 128
#: Rows, at most, and columns, at least, of products whose kernels read computed matrices where they are, zero points included.
_FEW_ROWS: Final = 8
_LEAST_COLUMNS: Final = 16
#: Inputs, at most, of known uint8 that are multiplied as they are: in less time than sums of rows take.
_FEW_INPUTS: Final = 24


def matrix_scale(call: NodeCall, scale: Operand) -> Operand:
    """Return a scale in float32: one number, or one for each column."""
    return call.math.reshape(call.math.cast(scale, "float32"), () if math.prod(scale.shape) == 1 else (-1,))


def integer_product(
    call: NodeCall,
    left: Operand,
    left_zero: Operand | None,
    right: Operand,
    right_zero: Operand | None,
    scales: tuple[Operand, Operand] | None = None,
) -> Operand | None:
    """Return the product of bytes less their zero points, as int32; with ``scales`` times both, as float32.

    ``left`` has one zero point and one scale, the matrix ``right`` one of both or one for each column; any of them may be
    computed. A batch of right matrices has one zero point. Returns None for operands that integer kernels do not multiply.
    """
    m = call.math
    bytes_ = ("uint8", "int8")
    single = left_zero is None or math.prod(left_zero.shape) == 1
    if min(len(left.shape), len(right.shape)) < 2 or not single:
        return None
    if dtype_of(left) not in bytes_ or dtype_of(right) not in bytes_:
        return None
    point = _point(call, right_zero)
    if len(right.shape) != 2:
        return None if scales else _batch_product(call, left, left_zero, right, point)
    # Known numbers are packed once, and most as int8; computed ones without a zero point are multiplied as they are.
    computed, none = isinstance(right, Value), not isinstance(point, Value) and not point.any()
    few = computed and math.prod(left.shape[:-1]) <= _FEW_ROWS and right.shape[1] >= _LEAST_COLUMNS
    as_is = few or (none and (computed or right.shape[0] <= _FEW_INPUTS))
    if dtype_of(right) == "uint8" and not as_is:
        right = signed(call, right)
        point = m.binary(point, np.asarray(_SHIFT, np.int32), "sub")
        none = not isinstance(point, Value) and not point.any()
    dtype = "int32" if scales is None else "float32"
    points = {} if left_zero is None else {"src": m.reshape(m.cast(left_zero, "int32"), ())}
    if few and not none:
        points["weights"] = point
    src: dict[str, Operand] = {} if scales is None else {"src": m.reshape(m.cast(scales[0], "float32"), ())}
    weights: dict[str, Operand] = {} if scales is None else {"weights": matrix_scale(call, scales[1])}

    def product(matrix: Operand, numbers: dict[str, Operand], part: str) -> Operand:
        options: dict[str, Any] = {"zero_points": points, "name": call.name_part(part)}
        if numbers:
            options["scales"] = numbers
        return call.graph.matmul(m.value(left), matrix, dtype=dtype, **options)

    result = product(right, {**src, **weights}, "product")
    if none or few:
        return result
    # (x - a)(w - b) = (x - a) w - b (x - a), and the sums of x - a along the rows are a product with ones.
    sums = product(np.ones((right.shape[0], 1), np.int8), src, "sums")
    factor = m.cast(point, dtype)
    if weights:
        factor = m.binary(factor, weights["weights"], "mul")
    return m.binary(result, m.binary(sums, factor, "mul"), "sub")


def _batch_product(
    call: NodeCall, left: Operand, left_zero: Operand | None, right: Operand, point: Operand
) -> Operand | None:
    """Return the products of a batch of right matrices as int32, None if these have several zero points."""
    m, rank = call.math, max(len(left.shape), len(right.shape))
    if point.shape:
        return None
    left, right = (m.value(m.reshape(each, (*(1,) * (rank - len(each.shape)), *each.shape))) for each in (left, right))
    points = {"weights": point}
    if left_zero is not None:
        points["src"] = m.reshape(m.cast(left_zero, "int32"), ())
    return call.graph.matmul(left, right, dtype="int32", zero_points=points, name=call.name_part("product"))


def _point(call: NodeCall, zero: Operand | None) -> Operand:
    """Return the zero points of a matrix as int32: one number, or one for each column."""
    m = call.math
    if zero is None:
        return np.zeros((), np.int32)
    return m.reshape(m.cast(zero, "int32"), () if math.prod(zero.shape) == 1 else (-1,))


def signed(call: NodeCall, source: Operand) -> Operand:
    """Return uint8 less 128 as int8."""
    if isinstance(source, Value):
        points = {"src": np.asarray(_SHIFT, np.int32)}
        return call.graph.reorder(source, dtype="int8", zero_points=points, name=call.name_part("signed"))
    return call.folding.combine(np.bitwise_xor, source, np.asarray(_SHIFT, np.uint8)).view(np.int8)
