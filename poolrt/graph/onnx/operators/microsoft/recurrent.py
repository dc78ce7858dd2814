"""LSTM whose products quantise their rows while a model runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ....values import Value
from ...call import NodeCall, Operator
from ...tensors import Operand, dtype_of, shape_of
from .. import recurrent
from ..directions import of_direction
from ..integer_products import integer_product, matrix_scale, signed
from ..quantisation import dequantized, quantize_range
from ..uneven_sequences import are_uneven
from ..unrolled_lstm import MOST_STEPS, ORDER, Product, ordered_columns, unroll

#: Gates of a graph's cells (i, f, c, o) by their number in ONNX's order (i, o, f, c).
_GATES: Final = (0, 2, 3, 1)
_SIGN: Final = 128
_USUAL: Final = ["Sigmoid", "Tanh", "Tanh"]


def dynamic_lstm(call: NodeCall) -> tuple[Operand | None, ...]:
    """Quantise a sequence, and each hidden state, to uint8 by its least and greatest number before it is multiplied.

    A primitive runs plain cells on the CPU. Limitation: other cells, and devices, have a few operations for each element, and
    weights of sequences that are too long for that are dequantised, and their rows are not quantised.
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
    usual = _USUAL * directions
    is_special = "clip" in call.attrs or bool(call.integer("input_forget", 0)) or recurrent.has_peepholes(call)
    is_plain = not is_special and call.texts("activations", usual) == usual
    if call.graph.engine == "cpu" and is_plain and not call.integer("layout", 0):
        return _cells(call, directions, hidden)
    if source[0] > MOST_STEPS:
        weights = [m.transpose(_wide(call, index), (0, 2, 1)) for index in (1, 2)]
        rest = [call.optional(index) for index in range(3, 8)]
        found = recurrent.OPERATORS["LSTM"](call.with_operands(call.operand(0), *weights, *rest))
        return found if isinstance(found, tuple) else (found,)

    def products(index: int, direction: int) -> Product:
        matrix, scale, zero = _weights(call, index, direction, hidden, ORDER)

        def product(rows: Operand) -> Operand:
            stored, factor, point = quantize_range(call, rows)
            found = integer_product(call, stored, point, matrix, zero, (factor, scale))
            if found is None:
                raise call.malformed(f"weights of type {dtype_of(matrix)}; expect int8 or uint8")
            return found

        return product

    return unroll(call, directions, hidden, products)


def _cells(call: NodeCall, directions: int, hidden: int) -> tuple[Operand, ...]:
    """Return the results of plain cells: of each direction a product for all elements, and a primitive for all steps."""
    m, source = call.math, call.real(0)
    steps, batch, _ = shape_of(source)
    wanted = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    direction = call.text("direction", "forward")
    if len(wanted.get(direction, ())) != directions:
        raise call.malformed(f"weights of {directions} directions do not fit the direction {direction!r}")
    stored, factor, point = quantize_range(call, source)

    def of_columns(operand: Operand) -> Operand:
        """Return a number for each column of each gate."""
        if math.prod(operand.shape) == 1:
            return m.expand(m.reshape(operand, (1, 1)), (4, hidden))
        return m.reshape(operand, (4, hidden))

    results, last, cells = list[Operand](), list[Operand](), list[Operand]()
    for number, backwards in enumerate(wanted[direction]):
        weights, scale, zero = _weights(call, 1, number, hidden, _GATES)
        gates = integer_product(call, stored, point, weights, zero, (factor, scale))
        if gates is None:
            raise call.malformed(f"weights of shape {shape_of(weights)}")
        bias = _part(call, 3, number)
        if bias is not None:
            first, second = (m.slice(bias, [start], [start + 4 * hidden], [0], [1]) for start in (0, 4 * hidden))
            added = ordered_columns(m, m.binary(first, second, "add"), hidden, _GATES)
            gates = m.binary(gates, added, "add")
        weights, scale, zero = _weights(call, 2, number, hidden, _GATES)
        points = m.cast(zero, "int32") if zero is not None else np.zeros((), np.int32)
        if dtype_of(weights) == "uint8":
            weights, points = signed(call, weights), m.binary(points, np.asarray(_SIGN, np.int32), "sub")
        some = isinstance(points, Value) or bool(points.any())
        h, c = call.graph.dynamic_lstm(
            m.value(m.reshape(gates, (steps, batch, 4, hidden))), m.reshape(weights, (hidden, 4, hidden)),
            of_columns(matrix_scale(call, scale)), of_columns(points) if some else None, *_states(call, number, batch, hidden),
            backwards=backwards, name=call.name_part("cells"),
        )  # fmt: skip
        end = 0 if backwards else steps - 1
        results.append(m.unsqueeze(h, (1,)))
        last.append(m.slice(h, [end], [end + 1], [0], [1]))
        cells.append(m.unsqueeze(c, (0,)))
    return m.concat(results, 1), m.concat(last, 0), m.concat(cells, 0)


def _weights(
    call: NodeCall, index: int, number: int, hidden: int, order: Sequence[int]
) -> tuple[Operand, Operand, Operand | None]:
    """Return weights, scales and zero points of a direction, with columns of gates in an order."""
    matrix, scale, zero = (_part(call, each, number) for each in (index, 6 + 2 * index, 7 + 2 * index))
    if matrix is None or scale is None:
        raise call.malformed("weights or scales are missing")
    if dtype_of(matrix) not in ("int8", "uint8"):
        raise call.malformed(f"weights of type {dtype_of(matrix)}; expect int8 or uint8")
    m = call.math
    return (
        ordered_columns(m, matrix, hidden, order), ordered_columns(m, scale, hidden, order),
        None if zero is None else ordered_columns(m, zero, hidden, order),
    )  # fmt: skip


def _states(call: NodeCall, number: int, batch: int, hidden: int) -> tuple[Operand | None, Operand | None]:
    """Return the first h and c of a direction: zeros for one that is missing, unless both are."""
    found = [_part(call, index, number) for index in (5, 6)]
    if found == [None, None]:
        return None, None
    m = call.math
    zeros = m.expand(m.reshape(m.number(0, call.real(0)), (1, 1)), (batch, hidden))
    first, second = (zeros if state is None else state for state in found)
    return first, second


def _part(call: NodeCall, index: int, direction: int) -> Operand | None:
    """Return weights of a direction, or their scales or zero points: one number, or one for each column."""
    found = of_direction(call, index, direction)
    return None if found is None else call.math.squeeze(found, (0,))


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
