"""LSTM whose products quantise their rows while a model runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ...call import NodeCall, Operator
from ...tensors import Operand, dtype_of, shape_of
from .. import recurrent
from ..integer_products import integer_product
from ..quantisation import dequantized, quantize_range
from ..uneven_sequences import are_uneven
from ..unrolled_lstm import MOST_STEPS, Product, unroll


def dynamic_lstm(call: NodeCall) -> tuple[Operand | None, ...]:
    """Quantise a sequence, and each hidden state, to uint8 by its least and greatest number before it is multiplied.

    Limitation: weights of longer sequences than an LSTM is unrolled for are dequantised, and their rows are not quantised.
    """
    m = call.math
    if dtype_of(call.real(0)) != "float32":
        raise call.unsupported(f"input 0 is of type {dtype_of(call.real(0))}; expect float32")
    if are_uneven(call):
        raise call.unsupported("sequences of different lengths, or of lengths that the model computes")
    source, wide, deep = (call.shape(index) for index in range(3))
    if len(source) != 3 or len(wide) != 3 or len(deep) != 3 or wide[2] % 4 or deep[1:] != (wide[2] // 4, wide[2]):
        raise call.malformed(f"shapes {source}, {wide} and {deep} are not those of an LSTM")
    directions, hidden = wide[0], wide[2] // 4
    if source[0] > MOST_STEPS:
        weights = [m.transpose(_wide(call, index), (0, 2, 1)) for index in (1, 2)]
        rest = [call.optional(index) for index in range(3, 8)]
        found = recurrent.OPERATORS["LSTM"](call.with_operands(call.operand(0), *weights, *rest))
        return found if isinstance(found, tuple) else (found,)

    def products(index: int, direction: int) -> Product:
        matrix, scale, zero = (_part(call, each, direction) for each in (index, 6 + 2 * index, 7 + 2 * index))
        if matrix is None or scale is None:
            raise call.malformed("weights or scales are missing")

        def product(rows: Operand) -> Operand:
            stored, factor, point = quantize_range(call, rows)
            found = integer_product(call, stored, point, matrix, zero, (factor, scale))
            if found is None:
                raise call.malformed(f"weights of type {dtype_of(matrix)}; expect int8 or uint8")
            return found

        return product

    return unroll(call, directions, hidden, products)


def _part(call: NodeCall, index: int, direction: int) -> Operand | None:
    """Return weights of a direction, or their scales or zero points: one number, or one for each column."""
    m, found = call.math, call.optional(index)
    if found is None:
        return None
    return m.squeeze(m.slice(found, [direction], [direction + 1], [0], [1]), (0,))


def _wide(call: NodeCall, index: int) -> Operand:
    """Return dequantised weights of all directions."""
    m = call.math
    source, given = call.tensor(index), (call.tensor(6 + 2 * index), call.optional(7 + 2 * index))
    scale, zero = (
        None if each is None else m.reshape(each, (shape_of(each)[0], 1, math.prod(shape_of(each)[1:])))
        for each in given
    )
    if scale is None:
        raise call.malformed("scales are missing")
    return dequantized(call, source, scale, zero)


OPERATORS: Final[Mapping[str, Operator]] = {"DynamicQuantizeLSTM": dynamic_lstm}
