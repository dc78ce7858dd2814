"""Determinants by elimination in float64: pivots are the greatest elements of what is left of each column.

A matrix is copied with rows for columns, so that candidates for a pivot are side by side. Eight of these rows are eliminated, the
others then once for all eight: each of their elements is loaded and stored an eighth as often. With a pivot of 0 the determinant
is 0, whatever else there is. Those of up to four rows of float32 are sums of products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .limits import PANEL
from .vec import F32, F64, I32, I64, VD, Builder, Value, call, dload, dstore, pointer, splat

_V8: Final = ir.VectorType(F64, PANEL)
_I8: Final = ir.VectorType(I64, PANEL)
#: Products of pivots are kept from here to the inverse, with a power of it beside them: a later pivot may lead back into range.
_LARGE: Final = 2.0**300
_SMALL: Final = 2.0**-300
#: The least number whose inverse is exact enough: it is normal.
_LEAST: Final = 2.0**-1022


def make(isa: str, dtype: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for matrices of f32 or f64, row-major.

    Arguments: addresses of matrices, of determinants, and of scratch memory; bytes of it of an item; matrices, those of an item;
    rows of a matrix, and elements from row to row of its copy: at least 8 more than the rows, rounded up to a multiple of 8. One
    item of work is some matrices.
    """
    is_wide = dtype == "f64"
    is_narrow, size = not is_wide, 8 if is_wide else 4
    get, put = (dload, dstore) if is_wide else (_load_wide, _store_narrow)
    turn = _make_turn(F64 if is_wide else F32)
    update2, update1 = _make_update(2), _make_update(1)

    def copy(src: int, to: int, rows: int, line: int) -> None:
        row, whole = rows * size, rows // 4 * 4
        for first in range(0, whole, 4):
            for column in range(0, whole, 4):
                turn(src + first * row + column * size, row, to + column * line + first * 8, line)
        for first in range(rows):
            for column in range(whole if first < whole else 0, rows):
                dstore(to + column * line + first * 8, get(src + first * row + column * size))

    def expand(at: int, rows: int) -> float:
        """Return the sum of products of a matrix of 2 to 4 rows, which float64 has the range for."""
        a00, a01, a10, a11 = get(at), get(at + size), get(at + rows * size), get(at + (rows + 1) * size)
        total = a00 * a11 - a01 * a10
        if rows > 2:
            a02, a12 = get(at + 2 * size), get(at + (rows + 2) * size)
            below = at + 2 * rows * size
            a20, a21, a22 = get(below), get(below + size), get(below + 2 * size)
            s1, s3 = a00 * a12 - a02 * a10, a01 * a12 - a02 * a11
            if rows == 3:
                total = total * a22 - s1 * a21 + s3 * a20
            else:
                a03, a13, a23 = get(at + 3 * size), get(at + 7 * size), get(at + 11 * size)
                last = at + 12 * size
                a30, a31, a32, a33 = get(last), get(last + size), get(last + 2 * size), get(last + 3 * size)
                s2, s4, s5 = a00 * a13 - a03 * a10, a01 * a13 - a03 * a11, a02 * a13 - a03 * a12
                total = total * (a22 * a33 - a23 * a32) - s1 * (a21 * a33 - a23 * a31) + s2 * (a21 * a32 - a22 * a31)
                total += s3 * (a20 * a33 - a23 * a30) - s4 * (a20 * a32 - a22 * a30) + s5 * (a20 * a31 - a21 * a30)
        return total

    def scaled(value: float, power: int) -> tuple[float, int]:
        """Divide a number by a power of `_LARGE`, so that products of two neither overflow nor vanish; return both."""
        while abs(value) > _LARGE and abs(value) < math.inf:
            value *= _SMALL
            power += 1
        while abs(value) < _SMALL and value != 0.0:
            value *= _LARGE
            power -= 1
        return value, power

    def eliminate_panel(a: int, first: int, rows: int, line: int, total: float, power: int) -> tuple[float, int]:
        """Eliminate rows from ``first`` on, and return ``total``, and its power of `_LARGE`, times their pivots."""
        top = a + first * line
        for row in range(first, min(rows, first + PANEL)):
            if total != 0.0:
                at, done = a + row * line, row - first
                if done > 0:
                    _solve(at + first * 8, top + first * 8, line, done)
                    for column in range((first + PANEL) * 8, rows * 8, 128):
                        update1(at + column, at + first * 8, top + column, line, done)
                chosen = _find(at, first, row, rows)
                if chosen != row:
                    total = -total
                    for other in range(first, rows):
                        _swap(a + other * line + row * 8, a + other * line + chosen * 8)
                pivot = dload(at + row * 8)
                if pivot == 0.0:
                    # Not the product, which is NaN if the others are infinite.
                    total = 0.0
                else:
                    near, power = scaled(pivot, power)
                    total, power = scaled(total * near, power)
                    if abs(pivot) >= _LEAST:
                        inverse = 1.0 / pivot
                        for column in range(first * 8, rows * 8, 64):
                            _multiply(at + column, inverse)
                    else:
                        for column in range(row, rows):
                            dstore(at + column * 8, dload(at + column * 8) / pivot)
        return total, power

    def determinant(
        begin: int, end: int, src: int, dst: int, scratch: int, room: int, count: int, together: int, rows: int, step: int
    ) -> None:  # fmt: skip
        line = step * 8
        for item in range(begin, end):
            a = scratch + item * room
            for number in range(item * together, min(count, (item + 1) * together)):
                at = src + number * rows * rows * size
                total, power, is_done = 1.0, 0, False
                if is_narrow and rows > 1 and rows < 5:
                    total = expand(at, rows)
                    # Others have numbers that are not finite, of which a product with 0 is none.
                    is_done = abs(total) < math.inf
                    if not is_done:
                        total = 1.0
                if not is_done:
                    copy(at, a, rows, line)
                end_row = 0 if is_done else rows
                for first in range(0, end_row, PANEL):
                    total, power = eliminate_panel(a, first, rows, line, total, power)
                    later = first + PANEL
                    if total != 0.0 and later < rows:
                        top = a + first * line
                        for row in range(later, rows):
                            _solve(a + row * line + first * 8, top + first * 8, line, PANEL)
                        for row in range(later, rows - 1, 2):
                            at = a + row * line
                            for column in range(later * 8, rows * 8, 128):
                                update2(at + column, at + first * 8, top + column, line, PANEL)
                        if (rows - later) % 2:
                            at = a + (rows - 1) * line
                            for column in range(later * 8, rows * 8, 128):
                                update1(at + column, at + first * 8, top + column, line, PANEL)
                while power > 0 and abs(total) < math.inf:
                    total *= _LARGE
                    power -= 1
                while power < 0 and total != 0.0:
                    total *= _SMALL
                    power += 1
                put(dst + number * size, total)

    return determinant, types.void(*[types.int64] * 10)


@intrinsic
def _load_wide(_: Any, address: Any) -> Any:
    """Load a float32 as float64."""
    return types.float64(types.int64), lambda context, b, sig, a: b.fpext(b.load(pointer(b, a[0], F32), align=4), F64)


@intrinsic
def _store_narrow(_: Any, address: Any, value: Any) -> Any:
    """Store a float64 as float32."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        b.store(b.fptrunc(a[1], F32), pointer(b, a[0], F32), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.float64), emit


@intrinsic
def _swap(_: Any, first: Any, second: Any) -> Any:
    """Exchange the numbers at two addresses."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        places = [pointer(b, address, F64) for address in a]
        low, high = (b.load(place, align=8) for place in places)
        b.store(high, places[0], align=8)
        b.store(low, places[1], align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def _multiply(_: Any, at: Any, factor: Any) -> Any:
    """Multiply 8 numbers at an address."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        place = pointer(b, a[0], _V8)
        b.store(b.fmul(b.load(place, align=8), _splat8(b, a[1])), place, align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.float64), emit


@intrinsic
def _find(_: Any, row: Any, start: Any, first: Any, end: Any) -> Any:
    """Return the column of the greatest element of a row from ``first`` on; NaN is the greatest.

    Columns are looked at in groups of 8, from ``start`` on, a multiple of 8 that is at most 7 less than ``first``.
    """

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        row, start, first, end = a
        lows, highs = _splat8(b, first), _splat8(b, end)
        numbers = ir.Constant(_I8, list(range(PANEL)))
        before = b.block
        loop, done = b.append_basic_block("columns"), b.append_basic_block("found")
        b.branch(loop)
        b.position_at_end(loop)
        column, best, places = b.phi(I64), b.phi(_V8), b.phi(_I8)
        value = b.load(pointer(b, b.add(row, b.shl(column, I64(3))), _V8), align=8)
        here = b.add(_splat8(b, column), numbers)
        size = call(b, "llvm.fabs.v8f64", value, result=_V8)
        size = b.select(
            b.fcmp_unordered("uno", value, value), ir.Constant(_V8, [ir.Constant(F64, math.inf)] * PANEL), size
        )
        among = b.and_(b.icmp_signed(">=", here, lows), b.icmp_signed("<", here, highs))
        is_more = b.and_(among, b.fcmp_ordered(">", size, best))
        new_best, new_places = b.select(is_more, size, best), b.select(is_more, here, places)
        following = b.add(column, I64(PANEL))
        none = ir.Constant(_V8, [ir.Constant(F64, -1.0)] * PANEL)
        for phi, at_first, then in ((column, start, following), (best, none, new_best), (places, lows, new_places)):
            phi.add_incoming(at_first, before)
            phi.add_incoming(then, loop)
        b.cbranch(b.icmp_signed("<", following, end), loop, done)
        b.position_at_end(done)
        most = call(b, "llvm.vector.reduce.fmax.v8f64", new_best, result=F64)
        is_best = b.fcmp_ordered("==", new_best, _splat8(b, most))
        chosen = b.select(is_best, new_places, ir.Constant(_I8, [(1 << 62)] * PANEL))
        return call(b, "llvm.vector.reduce.umin.v8i64", chosen, result=I64)

    return types.int64(*[types.int64] * 4), emit


@intrinsic
def _solve(_: Any, at: Any, above: Any, line: Any, count: Any) -> Any:
    """Make the factors of a row, 8 at an address, of what is left of it: each is less the ones before times their rows.

    ``above`` is the address of these 8 columns in the first of ``count`` rows, ``line`` bytes apart.
    """

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        at, above, line, count = a
        place = pointer(b, at, _V8)
        value = b.load(place, align=8)
        end = b.append_basic_block("solved")
        found = []
        for number in range(PANEL - 1):
            found.append((value, b.block))
            more = b.append_basic_block("row")
            b.cbranch(b.icmp_signed(">", count, I64(number)), more, end)
            b.position_at_end(more)
            order = ir.Constant(ir.VectorType(I32, PANEL), [number] * PANEL)
            factor = b.shuffle_vector(value, value, order)
            row = b.load(pointer(b, b.add(above, b.mul(line, I64(number))), _V8), align=8)
            behind = ir.Constant(ir.VectorType(ir.IntType(1), PANEL), [int(lane > number) for lane in range(PANEL)])
            value = b.select(behind, _less(b, value, factor, row), value)
        found.append((value, b.block))
        b.branch(end)
        b.position_at_end(end)
        last = b.phi(_V8)
        for each, block in found:
            last.add_incoming(each, block)
        b.store(last, place, align=8)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), emit


def _make_turn(kind: ir.Type) -> Any:
    """Return the intrinsic that writes 4 by 4 numbers of a type as float64, with rows for columns.

    Arguments: address, bytes from row to row, the same of the result.
    """
    four, wide = ir.VectorType(kind, 4), ir.VectorType(F64, 4)

    @intrinsic
    def turn(_: Any, at: Any, step: Any, to: Any, line: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            at, step, to, line = a
            size = 8 if kind == F64 else 4
            rows = [b.load(pointer(b, b.add(at, b.mul(step, I64(number))), four), align=size) for number in range(4)]
            if kind != F64:
                rows = [b.fpext(row, wide) for row in rows]

            def mixed(x: Value, y: Value, order: list[int]) -> Value:
                return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, 4), order))

            a0, a1, a2, a3 = rows
            evens, odds = (
                [mixed(x, y, order) for x, y in ((a0, a1), (a2, a3))] for order in ([0, 4, 2, 6], [1, 5, 3, 7])
            )
            halves = ([0, 1, 4, 5], [2, 3, 6, 7])
            turned = [mixed(x, y, half) for half in halves for x, y in (evens, odds)]
            for number, row in enumerate(turned):
                b.store(row, pointer(b, b.add(to, b.mul(line, I64(number))), wide), align=8)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), emit

    return turn


def _make_update(height: int) -> Any:
    """Return the intrinsic that subtracts multiples of ``count`` rows from 16 columns of ``height`` neighbouring rows.

    Arguments: addresses of the columns in the first of these rows, of its factors, of the columns in the first row that is
    subtracted; bytes from row to row; ``count``, at least 1.
    """

    @intrinsic
    def update(_: Any, at: Any, factors: Any, rows: Any, line: Any, count: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            at, factors, rows, line, count = a
            apart = [b.mul(line, I64(number)) for number in range(height)]
            starts = [b.load(pointer(b, b.add(at, each), VD), align=8) for each in apart]
            before = b.block
            loop, done = b.append_basic_block("row"), b.append_basic_block("store")
            b.branch(loop)
            b.position_at_end(loop)
            number, place = b.phi(I64), b.phi(I64)
            sums = [b.phi(VD) for _ in range(height)]
            above = b.load(pointer(b, place, VD), align=8)
            new = []
            for total, each in zip(sums, apart, strict=True):
                where = b.add(b.add(factors, each), b.shl(number, I64(3)))
                new.append(_less(b, total, splat(b, b.load(pointer(b, where, F64), align=8)), above))
            following, after = b.add(number, I64(1)), b.add(place, line)
            for phi, start, then in zip(
                (number, place, *sums), (I64(0), rows, *starts), (following, after, *new), strict=True
            ):
                phi.add_incoming(start, before)
                phi.add_incoming(then, loop)
            b.cbranch(b.icmp_signed("<", following, count), loop, done)
            b.position_at_end(done)
            for value, each in zip(new, apart, strict=True):
                b.store(value, pointer(b, b.add(at, each), VD), align=8)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return update


def _less(b: Builder, total: Value, factor: Value, value: Value) -> Value:
    """Return a total less a product, fused if the level can."""
    name = f"llvm.fmuladd.v{total.type.count}f64"
    return call(b, name, b.fneg(factor), value, total, result=total.type)


def _splat8(b: Builder, scalar: Value) -> Value:
    kind = ir.VectorType(scalar.type, PANEL)
    undefined = ir.Constant(kind, ir.Undefined)
    first = b.insert_element(undefined, scalar, I32(0))
    return b.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, PANEL), [0] * PANEL))
