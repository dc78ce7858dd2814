"""Products of integers that are quantised while a model runs, in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...call import NodeCall, Operator
from ...tensors import Operand, dtype_of
from ..integer_products import integer_product
from ..quantisation import dequantized, quantize_range


def dynamic_product(call: NodeCall) -> Operand:
    """Quantise A to uint8 by its least and greatest number, and multiply it by B."""
    source = call.real(0)
    if dtype_of(source) != "float32":
        raise call.unsupported(f"input 0 is of type {dtype_of(source)}; expect float32")
    stored, scale, zero = quantize_range(call, source)
    return _product(call, (stored, scale, zero), (call.tensor(1), call.tensor(2), call.optional(3)), 4)


def product_to_float(call: NodeCall) -> Operand:
    """Multiply integers less their zero points, times both scales."""
    left = call.tensor(0), call.tensor(2), call.optional(4)
    return _product(call, left, (call.tensor(1), call.tensor(3), call.optional(5)), 6)


Quantised = tuple[Operand, Operand, "Operand | None"]


def _product(call: NodeCall, left: Quantised, right: Quantised, bias: int) -> Operand:
    m = call.math
    result = integer_product(call, left[0], left[2], right[0], right[2], (left[1], right[1]))
    if result is None:
        # Several matrices or zero points of rows: integer kernels have neither.
        rank = len(left[0].shape)
        sources = dequantized(call, left[0], left[1], left[2], max(rank - 2, 0)), _columns(call, *right)
        result = m.matmul(*sources, "float32")
    return m.binary(result, call.tensor(bias), "add") if call.has(bias) else result


def _columns(call: NodeCall, source: Operand, scale: Operand, zero: Operand | None) -> Operand:
    """Dequantise matrices, which have one scale and zero point, or one for each column, alike or for each matrix."""
    rank = len(source.shape)
    found = dequantized(call, source, scale, zero, rank - 1)
    if tuple(found.shape) != tuple(source.shape):
        raise call.malformed(f"scales and zero points do not fit {tuple(source.shape)}")
    return found


OPERATORS: Final[Mapping[str, Operator]] = {
    "DynamicQuantizeMatMul": dynamic_product,
    "MatMulIntegerToFloat": product_to_float,
}
