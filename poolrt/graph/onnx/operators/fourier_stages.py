"""Fourier transforms of composite lengths in two stages: of the columns, then of the rows of a matrix of the elements.

Element ``columns * i + j`` of a signal is in row i and column j, and frequency ``k + rows * l`` is element k of a column's
transform, turned, then element l of a row's. A stage is one real product: a complex number is two real ones side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..folding import Array
from ..tensors import Operand, Tensors

_Floats = NDArray[np.float64]
#: Longer signals are not divided: looking for factors of a length that a model gives would have no bound.
_MOST: Final = 1 << 24


def find_stages(length: int) -> tuple[int, int] | None:
    """Return rows and columns for a length; None if one product takes less time than the two stages and what is between them."""
    if length > _MOST:
        return None
    rows = next((each for each in range(math.isqrt(length), 1, -1) if length % each == 0), 1)
    columns = length // rows
    return (rows, columns) if 4 * (rows + columns) <= length else None


def transform_in_stages(
    m: Tensors,
    signals: Operand,
    stages: tuple[int, int],
    sign: float,
    scale: float,
    made: int,
    book: Callable[[tuple[int, ...]], None],
) -> Operand:
    """Transform signals of float64 (count, parts, length), of one part (real) or two, to (count, ``made``, length).

    ``sign`` is that of the exponent; one part made is the real one. ``book`` counts the elements of a table before it is made.
    """
    rows, columns = stages
    count, parts, length = signals.shape
    for shape in ((parts * rows, 4 * rows), (2 * columns, 2 * columns), (6, length)):
        book(shape)
    by_columns = m.transpose(m.reshape(signals, (count, parts, rows, columns)), (0, 3, 1, 2))
    cosines, sines = _waves(np.outer(np.arange(rows), np.arange(rows)), rows, sign)
    # Of each result z, beside z itself, z times the imaginary unit: turning z takes a product with each.
    first = np.block([[cosines, sines, -sines, cosines], [-sines, cosines, -cosines, -sines]][:parts])
    found = m.matmul(m.reshape(by_columns, (count * columns, parts * rows)), first)
    pairs = m.reshape(found, (count, columns, 4, rows))
    plain, turned = (m.slice(pairs, [start], [start + 2], [2], [1]) for start in (0, 2))
    cosines, sines = (_twice(each) for each in _waves(np.outer(np.arange(columns), np.arange(rows)), length, sign))
    joined = m.binary(m.binary(plain, cosines, "mul"), m.binary(turned, sines, "mul"), "add")
    by_rows = m.reshape(m.transpose(joined, (0, 3, 2, 1)), (count * rows, 2 * columns))
    cosines, sines = (scale * each for each in _waves(np.outer(np.arange(columns), np.arange(columns)), columns, sign))
    second = np.block([[cosines, sines], [-sines, cosines]])[:, : made * columns]
    results = m.reshape(m.matmul(by_rows, np.ascontiguousarray(second)), (count, rows, made, columns))
    return m.reshape(m.transpose(results, (0, 2, 3, 1)), (count, made, length))


def _waves(steps: NDArray[np.int64], length: int, sign: float) -> tuple[_Floats, _Floats]:
    """Return cosines and sines of ``steps`` parts of a circle of ``length``."""
    angles = 2 * math.pi / length * (steps % length)
    return np.cos(angles), np.sin(angles) * sign


def _twice(table: _Floats) -> Array:
    """Return a table (columns, rows) for both parts of signals (count, columns, parts, rows)."""
    return np.ascontiguousarray(np.broadcast_to(table[None, :, None], (1, len(table), 2, table.shape[1])))
