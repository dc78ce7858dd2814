"""Pack weights of few inputs for convolutions whose numbers of a row of the kernel are neighbours, without any between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_dot import GROUP
from .vec import LANES, Builder, Value, pointer


def make(isa: str, how: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of weights (blocks, rows, columns, inputs in groups filled up with zeros, 16 outputs, numbers of a group)
    and of the packed ones (blocks, rows, groups of the numbers of a row, 16 outputs, numbers of a group); rows, columns, inputs.
    One item of work is a block of 16 outputs.
    """
    size = GROUP[how]
    clear, place = _make_clear(size), _make_place(size)

    def join(begin: int, end: int, weights: int, packed: int, rows: int, columns: int, inputs: int) -> None:
        group_bytes = 16 * size
        filled = (inputs + size - 1) // size
        groups = (columns * inputs + size - 1) // size
        for item in range(begin * rows, end * rows):
            source, to = weights + item * columns * filled * group_bytes, packed + item * groups * group_bytes
            for group in range(groups):
                clear(to + group * group_bytes)
            for number in range(columns * inputs):
                channel = number % inputs
                at = source + (number // inputs * filled + channel // size) * group_bytes
                place(to + number // size * group_bytes, at, channel % size * 8, number % size * 8)

    return join, types.void(*[types.int64] * 7)


def _make_clear(size: int) -> Any:
    """Return the intrinsic that clears a group of 16 outputs."""
    kind = ir.VectorType(ir.IntType(8 * size), LANES)

    @intrinsic
    def clear(_: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            b.store(ir.Constant(kind, [0] * LANES), pointer(b, a[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64), emit

    return clear


def _make_place(size: int) -> Any:
    """Return the intrinsic that adds a byte of each of 16 outputs to a group: address of the group, of another; bits before."""
    element = ir.IntType(8 * size)
    kind = ir.VectorType(element, LANES)

    @intrinsic
    def place(_: Any, to: Any, at: Any, right: Any, left: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            to, at, right, left = a

            def same(number: Value) -> Value:
                one = b.insert_element(ir.Constant(kind, ir.Undefined), b.trunc(number, element), ir.IntType(32)(0))
                return b.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))

            value = b.lshr(b.load(pointer(b, at, kind), align=1), same(right))
            value = b.shl(b.and_(value, ir.Constant(kind, [255] * LANES)), same(left))
            where = pointer(b, to, kind)
            b.store(b.or_(b.load(where, align=1), value), where, align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), emit

    return place
