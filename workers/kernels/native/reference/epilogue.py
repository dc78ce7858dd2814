"""Elements with scale and zero point, and results written after a chain: the attributes of every operation.

oneDNN's order: result = post_ops(value) / scale + zero point, with scale and zero point of dst; a source's element is
(stored - zero point) * scale. Both may vary along any dimensions: they are broadcast tensors of f32 and s32.

A chain is a record of its own::

    0  number of steps
    1 + 5 n  step n: kind (`STEPS`) · algorithm, of a sum the data type that dst is read as · alpha and beta as bits of
             float64 · bytes from the chain to the record of a binary step's second source, broadcast to dst

A sum adds alpha * (former dst - beta).
"""

from __future__ import annotations

from typing import Any, Final

from ...codes import STEPS
from .binaries import binary
from .data_types import is_whole, load, read_whole, store, wraps, write_whole
from .functions import eltwise
from .scalars import read_f64, read_s64
from .tensor import base, dtype, where

_ELTWISE: Final = STEPS["eltwise"]
_BINARY: Final = STEPS["binary"]


def fetch(operands: Any, record: int, item: int) -> float:
    """Return an element by its row-major number, with the tensor's zero point subtracted and its scale applied."""
    return quantised(operands, record, item, element(operands, record, item))


def quantised(operands: Any, record: int, item: int, stored: float) -> float:
    """Return the value of element ``item`` of a tensor from the stored one: (stored - zero point) * scale."""
    return (stored - zero_point(operands, record, item)) * scale(operands, record, item)


def element(operands: Any, record: int, item: int) -> float:
    """Return an element by its row-major number, as it is stored."""
    return load(base(operands, record) + where(record, item), dtype(record))


def wraps_as(record: int, other: int) -> bool:
    """Return whether two tensors are of one integer type whose arithmetic wraps, without scales and zero points."""
    return are_whole(record, other) and wraps(dtype(record))


def are_whole(record: int, other: int) -> bool:
    """Return whether two tensors are of one integer type, without scales and zero points."""
    plain = read_s64(record + 24) | read_s64(record + 32) | read_s64(other + 24) | read_s64(other + 32)
    return plain == 0 and dtype(record) == dtype(other) and is_whole(dtype(record))


def whole_element(operands: Any, record: int, item: int) -> int:
    """Return an integer by its row-major number, see `data_types.read_whole`."""
    return read_whole(base(operands, record) + where(record, item), dtype(record))


def put_whole(operands: Any, record: int, item: int, value: int) -> None:
    """Write the low bits of an int64 as an element of integers."""
    write_whole(base(operands, record) + where(record, item), dtype(record), value)


def scale(operands: Any, record: int, item: int) -> float:
    """Return the scale of an element by its row-major number, 1 if the tensor has none."""
    distance = read_s64(record + 24)
    return element(operands, record + distance, item) if distance != 0 else 1.0


def zero_point(operands: Any, record: int, item: int) -> float:
    """Return the zero point of an element by its row-major number, 0 if the tensor has none."""
    distance = read_s64(record + 32)
    return element(operands, record + distance, item) if distance != 0 else 0.0


def finish(operands: Any, record: int, chain: int, item: int, value: float) -> None:
    """Write element ``item`` (its row-major number) of a destination: ``value`` after the chain, scale and zero point."""
    place = base(operands, record) + where(record, item)
    value = chained(operands, chain, item, value, place)
    if read_s64(record + 24) != 0:
        value = value / scale(operands, record, item)
    if read_s64(record + 32) != 0:
        value = value + zero_point(operands, record, item)
    store(place, dtype(record), value)


def chained(operands: Any, chain: int, item: int, value: float, place: int) -> float:
    """Return a value after a chain; ``place`` is the address of dst's element, read by a sum."""
    step = chain + 8
    for _ in range(read_s64(chain)):
        kind = read_s64(step)
        algorithm = read_s64(step + 8)
        alpha = read_f64(step + 16)
        beta = read_f64(step + 24)
        if kind == _ELTWISE:
            value = eltwise(algorithm, value, alpha, beta)
        elif kind == _BINARY:
            value = binary(algorithm, value, element(operands, chain + read_s64(step + 32), item))
        else:
            value = value + alpha * (load(place, algorithm) - beta)
        step += 40
    return value
