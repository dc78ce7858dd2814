"""The indices of the elements that are not 0, in row-major order, zeros behind them, and how many there are.

The table has the dimensions of src, outermost first, as (extent, bytes from step to step). The index of the row that is searched
along all dimensions but the last is in the scratchpad.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from .bits import make_load, make_store, zero_bytes
from .compiler import types
from .compiler.language import intrinsic
from .keys import lowest_bit
from .vec import Builder, Value, iload, pointer

#: Elements of which one branch decides whether all are 0: most are in typical masks.
_TOGETHER: Final = 64
_store_8 = make_store(8)


def make(
    isa: str, size: int, signed_zero: bool, index_size: int, count_size: int, dense: bool
) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature; elements have ``size`` bytes, without a sign if zeros have one."""
    load, marks = make_load(size), _make_marks(size, signed_zero)
    store, store_count = make_store(index_size), make_store(count_size)
    kept = (1 << (8 * size - 1)) - 1 if signed_zero else -1

    def kernel(
        begin: int, end: int, src: int, dst: int, count: int, table: int, scratch: int, dims: int, elements: int,
        row_step: int,
    ) -> None:  # fmt: skip
        outer = dims - 1
        length, step = iload(table + 16 * outer), iload(table + 16 * outer + 8)
        for _ in range(begin, end):
            zero_bytes(scratch, 8 * dims)
            column, row, place, first = dst, 0, src, 0
            while first < elements:
                together = 1
                if dense:
                    together = min(_TOGETHER, elements - first)
                bits = 0
                if together == _TOGETHER:
                    bits = marks(src + first * size)
                elif dense:
                    for number in range(together):
                        if load(src + (first + number) * size) & kept != 0:
                            bits |= 1 << number
                elif load(place + (first - row) * step) & kept != 0:
                    bits = 1
                while bits != 0:
                    number = first + lowest_bit(bits)
                    bits &= bits - 1
                    while number >= row + length:
                        row += length
                        _advance(scratch, table, outer)
                    to = column
                    for dim in range(outer):
                        store(to, iload(scratch + 8 * dim))
                        to += row_step
                    store(to, number - row)
                    column += index_size
                first += together
                if not dense and first >= row + length and first < elements:
                    row += length
                    _advance(scratch, table, outer)
                    place = src
                    for dim in range(outer):
                        place += iload(scratch + 8 * dim) * iload(table + 16 * dim + 8)
            found = (column - dst) // index_size
            for _ in range(dims):
                zero_bytes(column, (elements - found) * index_size)
                column += row_step
            store_count(count, found)

    return kernel, types.void(*[types.int64] * 10)


def _advance(scratch: int, table: int, outer: int) -> None:
    """Step to the next row: its index along dimensions whose last row was searched is 0 again."""
    dim = outer - 1
    while dim >= 0:
        index = iload(scratch + 8 * dim) + 1
        if index < iload(table + 16 * dim):
            _store_8(scratch + 8 * dim, index)
            break
        _store_8(scratch + 8 * dim, 0)
        dim -= 1


def _make_marks(size: int, signed_zero: bool) -> Any:
    """Return the intrinsic that returns which of 64 adjacent elements are not 0, one bit each."""
    kind = ir.VectorType(ir.IntType(8 * size), _TOGETHER)

    @intrinsic
    def marks(_: Any, address: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            value = b.load(pointer(b, a[0], kind), align=1)
            if signed_zero:
                # Twice the bits are those without the sign.
                value = b.add(value, value)
            return b.bitcast(b.icmp_unsigned("!=", value, ir.Constant(kind, None)), ir.IntType(64))

        return types.int64(types.int64), emit

    return marks
