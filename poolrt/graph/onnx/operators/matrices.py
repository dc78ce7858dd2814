"""Determinants: by a primitive, or of small matrices by their definition and of others by elimination."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from ...values import Value
from ..call import NodeCall, Operator
from ..rearranging import arg_reduce
from ..tensors import Operand, Tensors, dtype_of, shape_of

#: Rows of a matrix: each is a step of about ten operations.
_MOST_ROWS: Final = 64
#: Rows up to which the definition takes less time, for one matrix and for thousands.
_FEW_ROWS: Final = 4


def determinant(call: NodeCall) -> Operand:
    """Multiply pivots, the greatest elements of what is left of each column, in float64: by a primitive on the CPU."""
    m, source = call.math, call.real(0)
    *outer, rows, columns = shape_of(source) if len(source.shape) > 1 else (0, 1)
    if rows != columns:
        raise call.malformed(f"expect square matrices, got shape {shape_of(source)}")
    if call.graph.engine == "cpu" and isinstance(source, Value):
        wide = source if dtype_of(source) == "float64" else m.cast(source, "float32")
        matrices = m.value(m.reshape(wide, (math.prod(outer), rows, rows)))
        found = call.graph.determinant(matrices, name=call.name_part("pivots"))
        return m.cast(m.reshape(found, outer), dtype_of(source))
    if rows > _MOST_ROWS:
        raise call.unsupported(f"matrices of {rows} rows; at most {_MOST_ROWS} are supported")
    left: Operand = m.reshape(m.cast(source, "float64"), (-1, rows, rows))
    batch = shape_of(left)[0]
    if 1 < rows <= _FEW_ROWS:
        return m.cast(m.reshape(_sum_of_products(m, left, rows), outer), dtype_of(source))
    total: Operand = np.ones((batch, 1, 1))
    for size in range(rows, 0, -1):
        head = m.slice(left, [0], [1], [2], [1])
        if size == 1:
            total = m.binary(total, head, "mul")
            break
        place = arg_reduce(m, m.eltwise(head, "abs"), "max", 1, True, False)
        chosen = m.gather_elements(left, m.expand(place, (batch, 1, size)), 1)
        pivot = m.slice(chosen, [0], [1], [2], [1])
        is_first = m.binary(place, np.zeros((1, 1, 1), np.int64), "eq")
        signed = m.select(is_first, pivot, m.eltwise(pivot, "linear", -1.0))
        total = m.binary(total, signed, "mul")
        # The chosen row and the first change places.
        numbers = np.arange(size, dtype=np.int64).reshape(1, size, 1)
        swapped = m.select(m.binary(place, numbers, "eq"), m.slice(left, [0], [1], [1], [1]), left)
        rest = m.slice(swapped, [1], [size], [1], [1])
        is_zero = m.binary(pivot, m.number(0, pivot), "eq")
        factors = m.binary(m.slice(rest, [0], [1], [2], [1]), m.select(is_zero, m.number(1, pivot), pivot), "div")
        ahead = m.slice(chosen, [1], [size], [2], [1])
        left = m.binary(m.slice(rest, [1], [size], [2], [1]), m.binary(factors, ahead, "mul"), "sub")
    return m.cast(m.reshape(total, outer), dtype_of(source))


def _sum_of_products(m: Tensors, matrices: Operand, rows: int) -> Operand:
    """Return determinants by their definition: of products of an element of each row in another column, with signs."""
    columns = list(itertools.permutations(range(rows)))
    signs = [(-1.0) ** sum(a > b for a, b in itertools.combinations(each, 2)) for each in columns]
    places = np.asarray(columns, np.int64) + np.arange(rows) * rows
    chosen = m.take(m.reshape(matrices, (-1, rows * rows)), places, 1)
    products = m.reduce(chosen, "mul", (2,), False)
    return m.reduce(m.binary(products, np.asarray(signs)[None], "mul"), "sum", (1,), False)


OPERATORS: Final[Mapping[str, Operator]] = {"Det": determinant}
