"""Quantisation: numbers as integers with a scale and a zero point."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from ...values import Value
from ..call import NodeCall, Operator
from ..element_types import array_type
from ..tensors import Operand, dtype_of
from .windows import window_of


def quantize(call: NodeCall) -> Operand:
    """Divide by a scale, round to even, add the zero point and saturate."""
    source, m = call.real(0), call.math
    wanted = _target(call)
    scale, zero = _along(call, 1), _along(call, 2) if call.has(2) else None
    if dtype_of(source) != "float32":
        source, scale = m.cast(source, "float32"), m.cast(scale, "float32")
    quotient = m.eltwise(m.value(m.binary(source, scale, "div")), "round")
    if zero is not None:
        quotient = m.binary(quotient, m.cast(zero, "float32"), "add")
    return call.graph.reorder(m.value(quotient), dtype=wanted, name=call.name)


def dequantize(call: NodeCall) -> Operand:
    """Subtract the zero point and multiply by a scale."""
    source, m = call.tensor(0), call.math
    if dtype_of(source) not in ("int8", "uint8", "int32"):
        raise call.unsupported(f"input 0 is of type {dtype_of(source)}")
    scale = _along(call, 1)
    dtype = dtype_of(scale)
    if "output_dtype" in call.attrs and call.integer("output_dtype"):
        number = call.integer("output_dtype")
        target = array_type(number)
        if target is None:
            raise call.unsupported(f"data type {number} is not supported")
        dtype = target.name
    if dtype == "float32" and (stored := _stored(call, source, scale)) is not None:
        return stored
    wide = m.cast(source, "float32")
    if call.has(2):
        wide = m.binary(wide, m.cast(_along(call, 2), "float32"), "sub")
    return m.cast(m.binary(wide, m.cast(scale, "float32"), "mul"), dtype)


def _stored(call: NodeCall, source: Operand, scale: Operand) -> Operand | None:
    """Return a dequantised tensor as a reorder with a scale, which passes fold into the operation that reads it.

    That is for bytes with known scales and one known zero point; there is one scale if the tensor is computed.
    """
    point = np.zeros((), np.int32)
    if call.has(2):
        given = call.tensor(2)
        if isinstance(given, Value) or given.size == 0:
            return None
        point = given.astype(np.int32).reshape(-1)[:1].reshape(())
        if np.any(given != given.reshape(-1)[0]):
            return None
    if isinstance(scale, Value) or dtype_of(scale) != "float32" or dtype_of(source) not in ("int8", "uint8"):
        return None
    rank = len(source.shape)
    if call.integer("block_size", 0) or rank == 0 or not np.all(np.isfinite(scale)):
        return None
    if isinstance(source, Value) and scale.size != 1:
        return None
    value = source if isinstance(source, Value) else call.graph.constant(source)
    scales = {"src": scale.reshape(()) if scale.size == 1 else scale.reshape((1,) * (rank - scale.ndim) + scale.shape)}
    points = {"src": point} if point else {}
    return call.graph.reorder(value, dtype="float32", scales=scales, zero_points=points, name=call.name)


def convolution_of_integers(call: NodeCall) -> Operand:
    """Convolve integers less their zero points, as int32."""
    return _convolution(call, (0, 2), (1, 3), None)


def quantized_convolution(call: NodeCall) -> Operand:
    """Convolve integers less their zero points, add the bias, and quantise the sums."""
    sums = _convolution(call, (0, 2), (3, 5), 8)
    rank = len(sums.shape)
    scales = [call.math.cast(call.tensor(index), "float64") for index in (1, 4, 6)]
    channels = [
        each if math.prod(each.shape) == 1 else call.math.reshape(each, (-1, *(1,) * (rank - 2))) for each in scales
    ]
    return _requantized(call, sums, channels, 7)


def quantized_product(call: NodeCall) -> Operand:
    """Multiply matrices of integers less their zero points, and quantise the sums."""
    left, right = _less_zero(call, 0, 2, -2), _less_zero(call, 3, 5, -1)
    sums = call.math.matmul(left, right, "int32")
    scales = [call.math.cast(call.tensor(index), "float64") for index in (1, 4, 6)]
    if len(scales[0].shape) == 1 and scales[0].shape[0] > 1:
        scales[0] = call.math.unsqueeze(scales[0], (1,))
    return _requantized(call, sums, scales, 7)


def _convolution(call: NodeCall, source: tuple[int, int], weights: tuple[int, int], bias: int | None) -> Operand:
    window, _ = window_of(call, call.shape(weights[0])[2:])
    left = _less_zero(call, *source, 0)
    right = _less_zero(call, *weights, 0)
    added = call.operand(bias) if bias is not None and call.has(bias) else None
    groups = call.integer("group", 1)
    return call.graph.convolution(
        call.math.value(left), call.math.value(right), added, groups=groups, dtype="int32", name=call.name, **window
    )


def _less_zero(call: NodeCall, index: int, zero: int, axis: int) -> Operand:
    """Return an operand as int32, less its zero point: one number, or one for each index of an axis."""
    m = call.math
    wide = m.cast(call.tensor(index), "int32")
    if not call.has(zero):
        return wide
    point = m.cast(call.tensor(zero), "int32")
    if math.prod(point.shape) == 1:
        point = m.reshape(point, ())
    elif axis != -1:
        point = m.reshape(point, (-1, *(1,) * (len(wide.shape) - 1 if axis == 0 else 1)))
    return m.binary(wide, point, "sub")


def _requantized(call: NodeCall, sums: Operand, scales: list[Operand], zero: int) -> Operand:
    """Multiply sums by both scales, divide them by that of the result, round to even, add the zero point and saturate."""
    m, wanted = call.math, dtype_of(call.operand(zero))
    if wanted not in ("uint8", "int8"):
        raise call.unsupported(f"results of {wanted} are not supported")
    factor = m.binary(m.binary(scales[0], scales[1], "mul"), scales[2], "div")
    scaled = m.eltwise(m.binary(m.cast(sums, "float64"), factor, "mul"), "round")
    point = m.reshape(m.cast(call.tensor(zero), "float64"), ())
    return call.graph.reorder(m.value(m.binary(scaled, point, "add")), dtype=wanted, name=call.name_part("dst"))


def _target(call: NodeCall) -> str:
    """Return the data type of a quantised result: that of the zero point, or an attribute's, or uint8."""
    wanted = "uint8"
    if call.has(2):
        wanted = dtype_of(call.operand(2))
    elif "output_dtype" in call.attrs and call.integer("output_dtype"):
        target = array_type(call.integer("output_dtype"))
        wanted = "another type" if target is None else target.name
    if wanted not in ("uint8", "int8"):
        raise call.unsupported(f"results of {wanted} are not supported")
    return wanted


def _along(call: NodeCall, index: int) -> Operand:
    """Return scales or zero points in a shape that broadcasts: one number, one for each index of an axis, or for blocks."""
    given, sizes = call.tensor(index), call.shape(0)
    block = call.integer("block_size", 0)
    if block:
        axis = call.axis(len(sizes), 1)
        if len(given.shape) != len(sizes) or given.shape[axis] * block < sizes[axis]:
            raise call.malformed(f"blocks of {block} and scales {tuple(given.shape)} do not fit {sizes}")
        m = call.math
        dims = tuple(given.shape)
        wide = m.expand(
            m.reshape(given, (*dims[: axis + 1], 1, *dims[axis + 1 :])), (*dims[: axis + 1], block, *dims[axis + 1 :])
        )
        joined = m.reshape(wide, (*dims[:axis], dims[axis] * block, *dims[axis + 1 :]))
        return m.slice(joined, [0], [sizes[axis]], [axis], [1])
    if len(given.shape) == 0 or (len(given.shape) == 1 and given.shape[0] == 1):
        return call.math.reshape(given, ())
    axis = call.axis(len(sizes), 1)
    if tuple(given.shape) != (sizes[axis],):
        raise call.malformed(f"scales of shape {tuple(given.shape)} do not fit axis {axis} of {sizes}")
    return call.math.reshape(given, (sizes[axis], *(1,) * (len(sizes) - axis - 1)))


OPERATORS: Final[Mapping[str, Operator]] = {
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
    "ConvInteger": convolution_of_integers,
    "QLinearConv": quantized_convolution,
    "QLinearMatMul": quantized_product,
}
