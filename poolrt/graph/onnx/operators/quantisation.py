"""Quantisation: numbers as integers with a scale and a zero point."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...values import Value
from ..call import NodeCall, Operator
from ..element_types import STORED_TYPES, array_type
from ..folding import Array
from ..tensors import MOST_SORTED, Operand, dtype_of
from .integer_products import signed
from .windows import window_of

#: Types of quantised tensors.
_QUANTISED: Final = ("int8", "uint8", "int16", "uint16")
#: Types that only known arrays have -> the least and the greatest number.
_SMALL: Final = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


def quantize(call: NodeCall) -> Operand:
    """Divide by a scale, round to even, add the zero point and saturate."""
    source, m = call.real(0), call.math
    sizes = tuple(source.shape)
    wanted = _target(call)
    scale, zero = _along(call, 1), _along(call, 2) if call.has(2) else None
    source = _viewed(call, source, _sizes_in_blocks(call))
    kind = dtype_of(source)
    if kind != "float32":
        source, scale = m.cast(source, "float32"), m.cast(scale, "float32")
    divided = m.binary(source, scale, "div")
    if kind in ("float16", "bfloat16") and call.opset >= 23 and call.integer("precision", 0) != 1:
        # Since opset 23 the quotient has the type of the scale, or another precision that a node names.
        divided = m.cast(m.cast(divided, kind), "float32")
    if wanted in _SMALL:
        return _viewed(call, _small_integers(call, divided, zero, wanted), sizes)
    quotient = m.eltwise(m.value(divided), "round")
    if zero is not None:
        quotient = m.binary(quotient, m.cast(zero, "float32"), "add")
    return _viewed(call, call.graph.reorder(m.value(quotient), dtype=wanted, name=call.name), sizes)


def dequantize(call: NodeCall) -> Operand:
    """Subtract the zero point and multiply by a scale."""
    source, m = call.tensor(0), call.math
    scale, zero = _along(call, 1), _along(call, 2) if call.has(2) else None
    if dtype_of(source) in STORED_TYPES.values():
        # Small integers are bytes, whose scale the operation that reads them may take.
        wider = {"uint4": "uint8", "uint2": "uint8", "int4": "int8", "int2": "int8"}.get(dtype_of(source), "float32")
        source, zero = m.cast(source, wider), None if zero is None else m.cast(zero, wider)
    elif dtype_of(source) not in (*_QUANTISED, "int32"):
        raise call.unsupported(f"input 0 is of type {dtype_of(source)}")
    dtype = dtype_of(scale)
    if "output_dtype" in call.attrs and call.integer("output_dtype"):
        number = call.integer("output_dtype")
        target = array_type(number)
        if target is None:
            raise call.unsupported(f"data type {number} is not supported")
        dtype = target.name
    if isinstance(zero, np.ndarray) and not zero.any():
        zero = None
    sizes = tuple(source.shape)
    source = _viewed(call, source, _sizes_in_blocks(call))
    if not (isinstance(source, Value) or isinstance(zero, Value)):
        source, zero = _centred(source, zero)
    if dtype == "float32" and (stored := _stored(call, source, scale, zero)) is not None:
        return _viewed(call, stored, sizes)
    wide = m.cast(source, "float32")
    if zero is not None:
        wide = m.binary(wide, m.cast(zero, "float32"), "sub")
    return _viewed(call, m.cast(m.binary(wide, m.cast(scale, "float32"), "mul"), dtype), sizes)


def _stored(call: NodeCall, source: Operand, scale: Operand, zero: Operand | None) -> Operand | None:
    """Return a dequantised tensor as a reorder with a scale, which passes fold into the operation that reads it.

    That is for whole numbers with known scales and zero points; of known ones only bytes, with one zero point. Scales and zero
    points have a shape that broadcasts.
    """
    if isinstance(scale, Value) or isinstance(zero, Value) or dtype_of(scale) != "float32":
        return None
    point = np.zeros((), np.int32) if zero is None else zero.astype(np.int32)
    if point.size and np.all(point == point.reshape(-1)[0]):
        point = point.reshape(-1)[0].reshape(())
    rank, is_known = len(source.shape), not isinstance(source, Value)
    if rank == 0 or not np.all(np.isfinite(scale)) or point.size == 0 or scale.size == 0:
        return None
    if dtype_of(source) not in (("int8", "uint8") if is_known else (*_QUANTISED, "int32")):
        return None
    if is_known and (call.integer("block_size", 0) or point.size != 1):
        return None
    if dtype_of(source) == "int32" and point.any():
        return None
    value = source if isinstance(source, Value) else call.graph.constant(source)

    def wide(numbers: Array) -> Array:
        return (
            numbers.reshape(()) if numbers.size == 1 else numbers.reshape((1,) * (rank - numbers.ndim) + numbers.shape)
        )

    if point.size != 1 and scale.size != 1 and wide(point).shape != wide(scale).shape:
        return None
    points = {"src": wide(point)} if point.any() else {}
    name = call.name_part("dequantised")
    return call.graph.reorder(value, dtype="float32", scales={"src": wide(scale)}, zero_points=points, name=name)


def quantize_dynamically(call: NodeCall) -> tuple[Operand, Operand, Operand]:
    """Quantise to uint8 by the least and the greatest number."""
    source = call.real(0)
    if dtype_of(source) != "float32":
        raise call.unsupported(f"input 0 is of type {dtype_of(source)}; expect float32")
    return quantize_range(call, source)


def quantize_range(call: NodeCall, source: Operand) -> tuple[Operand, Operand, Operand]:
    """Return a tensor as uint8, its scale and its zero point, which are computed from its least and greatest number."""
    m = call.math
    if isinstance(source, Value) and call.graph.engine == "cpu":
        return call.graph.dynamic_quantise(source, name=call.name_part("quantised"))
    # Other engines compute the range with all their threads.
    axes, zero = range(len(source.shape)), m.number(0.0, source)
    found = ((m.reduce(source, algorithm, axes, False), side) for algorithm, side in (("min", "lt"), ("max", "gt")))
    # NaN counts as 0.
    least, most = (m.select(m.binary(each, zero, side), each, zero) for each, side in found)
    scale = m.binary(m.binary(most, least, "sub"), m.number(255.0, source), "div")
    # The scale of zeros is 1, so that nothing is divided by 0.
    scale = m.select(m.binary(scale, zero, "eq"), m.number(1.0, source), scale)
    # The quotient is not negative; it is NaN if the least number is minus infinity, and then the zero point is 255.
    quotient, last = m.binary(m.binary(zero, least, "sub"), scale, "div"), m.number(255.0, source)
    start = m.select(m.binary(quotient, last, "lt"), quotient, last)
    # A reorder would add the zero point before it rounds, which differs for halves.
    point = m.eltwise(start, "round")
    whole = m.binary(m.eltwise(m.binary(source, scale, "div"), "round"), point, "add")
    stored, zero_point = (
        call.graph.reorder(m.value(each), dtype="uint8", name=call.name_part(name))
        for each, name in ((whole, "quantised"), (point, "point"))
    )
    return stored, scale, zero_point


def convolution_of_integers(call: NodeCall) -> Operand:
    """Convolve integers less their zero points, as int32."""
    return _convolution(call, (0, 2), (1, 3))


def quantized_convolution(call: NodeCall) -> Operand:
    """Convolve integers less their zero points, add the bias, and quantise the sums."""
    window, _ = window_of(call, call.shape(3)[2:])
    src = dequantized(call, call.tensor(0), call.tensor(1), call.optional(2))
    weights = dequantized(call, call.tensor(3), call.tensor(4), call.optional(5), 0)
    bias = _dequantized_bias(call, 8, (1, 4)) if call.has(8) else None
    result = call.graph.convolution(
        call.math.value(src), weights, bias, groups=call.integer("group", 1), name=call.name_part("sums"), **window
    )
    return quantized(call, result, call.tensor(6), call.operand(7))


def quantized_product(call: NodeCall) -> Operand:
    """Multiply matrices of integers less their zero points, and quantise the sums."""
    rank = len(call.shape(0))
    left = dequantized(call, call.tensor(0), call.tensor(1), call.optional(2), max(rank - 2, 0))
    right = dequantized(call, call.tensor(3), call.tensor(4), call.optional(5), len(call.shape(3)) - 1)
    scale = call.tensor(6)
    result = call.math.matmul(left, right, "float32")
    return quantized(call, result, scale, call.operand(7))


def dequantized(call: NodeCall, source: Operand, scale: Operand, zero: Operand | None, axis: int = 0) -> Operand:
    """Return (source - zero point) * scale in float32; there is one of both, or one for each index of an axis.

    If both are known, it is the form that passes fold into the operation that reads it.
    """
    m, rank = call.math, len(source.shape)
    scale = along_axis(call, m.cast(scale, "float32"), rank, axis)
    zero = None if zero is None else along_axis(call, zero, rank, axis)
    if not (isinstance(source, Value) or isinstance(zero, Value)):
        source, zero = _centred(source, zero)
    if (stored := _stored(call, source, scale, zero)) is not None:
        return stored
    wide = m.cast(source, "float32")
    if zero is not None:
        wide = m.binary(wide, m.cast(zero, "float32"), "sub")
    return m.binary(wide, scale, "mul")


def quantized(call: NodeCall, result: Operand, scale: Operand, zero: Operand | None) -> Operand:
    """Divide by a scale, round to even, add the zero point and saturate; the zero point has the type of the result."""
    m, wanted = call.math, "uint8" if zero is None else dtype_of(zero)
    if wanted not in ("uint8", "int8"):
        raise call.unsupported(f"results of {wanted} are not supported")
    if math.prod(scale.shape) != 1 or (zero is not None and math.prod(zero.shape) != 1):
        raise call.unsupported("several scales or zero points of a result are not supported")
    whole = m.eltwise(m.value(m.binary(result, m.reshape(m.cast(scale, "float32"), ()), "div")), "round")
    if zero is not None:
        whole = m.binary(whole, m.reshape(m.cast(zero, "float32"), ()), "add")
    return call.graph.reorder(m.value(whole), dtype=wanted, name=call.name_part("quantised"))


def along_axis(call: NodeCall, given: Operand, rank: int, axis: int) -> Operand:
    """Return numbers in a shape that broadcasts: one number, or one for each index of an axis."""
    if math.prod(given.shape) == 1:
        return call.math.reshape(given, ())
    return given if len(given.shape) > 1 else call.math.reshape(given, (-1, *(1,) * (rank - axis - 1)))


def _centred(source: Array, zero: Array | None) -> tuple[Array, Array | None]:
    """Return known bytes as int8 without a zero point if that holds all of them less their zero points, which broadcast."""
    if source.dtype.name not in ("uint8", "int8") or not 0 < source.size <= MOST_SORTED:
        return source, zero
    less = source.astype(np.int16) - (np.int16(0) if zero is None else zero.astype(np.int16))
    if less.min() >= -128 and less.max() <= 127:
        return less.astype(np.int8), None
    return source, zero


def _dequantized_bias(call: NodeCall, index: int, scales: tuple[int, int]) -> Operand:
    """Return a bias of int32, whose scale is the product of two others, in float32."""
    m = call.math
    first, second = (m.cast(call.tensor(each), "float32") for each in scales)
    scale = m.binary(first, second, "mul")
    scale = m.reshape(scale, ()) if math.prod(scale.shape) == 1 else m.reshape(scale, (-1,))
    return m.binary(m.cast(call.tensor(index), "float32"), scale, "mul")


def _convolution(call: NodeCall, source: tuple[int, int], weights: tuple[int, int]) -> Operand:
    """Convolve integers less their zero points, as int32."""
    m = call.math
    window, _ = window_of(call, call.shape(weights[0])[2:])
    groups = call.integer("group", 1)
    left, right = call.tensor(source[0]), call.tensor(weights[0])
    zero, shift = call.optional(source[1]), call.optional(weights[1])
    if shift is not None:
        shift = along_axis(call, shift, len(right.shape), 0)
    if not (isinstance(right, Value) or isinstance(shift, Value)):
        right, shift = _centred(right, shift)

    def convolve(src: Operand, kernel: Operand, **numbers: Any) -> Value:
        name = call.name_part("sums")
        return call.graph.convolution(
            m.value(src), m.value(kernel), groups=groups, dtype="int32", name=name, **numbers, **window
        )

    single = zero is None or math.prod(zero.shape) == 1
    # Bytes without a sign become signed ones with a zero point.
    has_point = shift is not None or dtype_of(right) == "uint8"
    if not single or (has_point and groups not in (1, right.shape[0])):
        return convolve(_less_zero(call, *source, 0), _less_zero(call, *weights, 0))
    points: dict[str, Any] = {}
    if zero is not None:
        points["zero_points"] = {"src": m.reshape(m.cast(zero, "int32"), ())}
    if dtype_of(right) == "uint8":
        less = np.asarray(128, np.int32)
        right = signed(call, right)
        shift = np.negative(less) if shift is None else m.binary(m.cast(shift, "int32"), less, "sub")
    result = convolve(left, right, **points)
    if shift is None:
        return result
    # (x - a)(w - b) = (x - a) w - b (x - a), and the sums of x - a in a window are a convolution with ones.
    kernel = np.ones((1 if groups == 1 else groups, *right.shape[1:]), np.int8)
    factor = m.cast(shift, "int32")
    if factor.shape:
        factor = m.reshape(factor, (1, right.shape[0], *(1,) * (len(right.shape) - 2)))
    return m.binary(result, m.binary(convolve(left, kernel, **points), factor, "mul"), "sub")


def _less_zero(call: NodeCall, index: int, zero: int, axis: int) -> Operand:
    """Return an operand as int32, less its zero point: one number, or one for each index of an axis."""
    m = call.math
    wide = m.cast(call.tensor(index), "int32")
    if not call.has(zero):
        return wide
    point = along_axis(call, m.cast(call.tensor(zero), "int32"), len(wide.shape), axis)
    return m.binary(wide, point, "sub")


def _target(call: NodeCall) -> str:
    """Return the data type of a quantised result: that of the zero point, or an attribute's, or uint8."""
    wanted = "uint8"
    if call.has(2):
        wanted = dtype_of(call.operand(2))
    elif "output_dtype" in call.attrs and call.integer("output_dtype"):
        target = array_type(call.integer("output_dtype"))
        wanted = "another type" if target is None else target.name
    if wanted not in _QUANTISED and wanted not in _SMALL:
        raise call.unsupported(f"results of {wanted} are not supported")
    return wanted


def _small_integers(call: NodeCall, quotient: Operand, zero: Operand | None, wanted: str) -> Operand:
    """Return known numbers as integers of a type that graphs do not have, such as weights that are dequantised next."""
    m = call.math
    if isinstance(quotient, Value) or isinstance(zero, Value):
        raise call.unsupported(f"a computed tensor cannot be quantised to {wanted}")
    whole = m.eltwise(quotient, "round")
    if zero is not None:
        whole = m.binary(whole, m.cast(zero, "float32"), "add")
    for limit, algorithm in zip(_SMALL[wanted], ("max", "min"), strict=True):
        whole = m.binary(whole, np.asarray(limit, np.float32), algorithm)
    return m.cast(m.cast(whole, "int8"), wanted)


def _sizes_in_blocks(call: NodeCall) -> tuple[int, ...]:
    """Return the shape of operand 0 with the axis of blocks as two, if these divide it; else its shape."""
    sizes = call.shape(0)
    block = call.integer("block_size", 0)
    if not block or 0 in sizes:
        return sizes
    axis = call.axis(len(sizes), 1)
    return (*sizes[:axis], sizes[axis] // block, block, *sizes[axis + 1 :]) if sizes[axis] % block == 0 else sizes


def _viewed(call: NodeCall, x: Operand, sizes: tuple[int, ...]) -> Operand:
    """Return the same elements in a shape."""
    return x if tuple(x.shape) == sizes else call.math.reshape(x, sizes)


def _along(call: NodeCall, index: int) -> Operand:
    """Return scales or zero points in a shape that broadcasts: one number, one for each index of an axis, or for blocks.

    Those for blocks broadcast to the shape of `_sizes_in_blocks`.
    """
    given, sizes = call.tensor(index), call.shape(0)
    block = call.integer("block_size", 0)
    if block:
        axis = call.axis(len(sizes), 1)
        if len(given.shape) != len(sizes) or given.shape[axis] * block < sizes[axis]:
            raise call.malformed(f"blocks of {block} and scales {tuple(given.shape)} do not fit {sizes}")
        m = call.math
        dims = tuple(given.shape)
        if len(_sizes_in_blocks(call)) > len(sizes):
            kept = m.slice(given, [0], [sizes[axis] // block], [axis], [1])
            return m.reshape(kept, (*dims[:axis], sizes[axis] // block, 1, *dims[axis + 1 :]))
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
    "DynamicQuantizeLinear": quantize_dynamically,
    "ConvInteger": convolution_of_integers,
    "QLinearConv": quantized_convolution,
    "QLinearMatMul": quantized_product,
}
