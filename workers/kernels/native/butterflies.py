"""Steps of Fourier transforms of several signals side by side: butterflies, and moves of signals to lanes and back.

A number of all signals is a vector of real parts and, behind it, one of imaginary parts, of `WIDTH` bytes each. No product is
fused with a sum: results have the same rounding on all levels.
"""

from __future__ import annotations

import math
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .vec import F32, F64, I32, I64, Builder, Value, pointer, splat

#: Bytes of the real or imaginary parts of one number: a register of AVX2.
WIDTH: Final = 32
_Numbers = list[tuple[Value, Value]]


def lanes_of(kind: str) -> int:
    """Return how many signals are side by side."""
    return WIDTH // (4 if kind == "f32" else 8)


def make_butterfly(kind: str, radix: int, turned: bool) -> Any:
    """Return the intrinsic that transforms ``radix`` numbers (2, 4 or odd).

    Arguments: the address of the first, bytes from one to the next, both of the results too, and the address of cosines and
    sines of the angles by which all results but the first are turned back, if they are ``turned``.
    """
    element = F32 if kind == "f32" else F64
    lanes = lanes_of(kind)
    held, size = ir.VectorType(element, lanes), WIDTH // lanes

    def emit_all(b: Builder, a: list[Value]) -> None:
        source, step, target, far, waves = a
        given: _Numbers = []
        for number in range(radix):
            place = b.add(source, b.mul(step, I64(number)))
            given.append((_load(b, place, held, size), _load(b, b.add(place, I64(WIDTH)), held, size)))
        for number, (real, imaginary) in enumerate(_transform(b, given)):
            if turned and number:
                at = b.add(waves, I64(2 * size * (number - 1)))
                cosine, sine = (
                    splat(b, b.load(pointer(b, b.add(at, I64(offset)), element), align=size), lanes)
                    for offset in (0, size)
                )
                real, imaginary = (
                    b.fadd(b.fmul(real, cosine), b.fmul(imaginary, sine)),
                    b.fsub(b.fmul(imaginary, cosine), b.fmul(real, sine)),
                )
            place = b.add(target, b.mul(far, I64(number)))
            _store(b, place, real, size)
            _store(b, b.add(place, I64(WIDTH)), imaginary, size)

    @intrinsic
    def butterfly(
        _: Any,
        source: types.Integer,
        step: types.Integer,
        target: types.Integer,
        far: types.Integer,
        waves: types.Integer,
    ) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            emit_all(b, a)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return butterfly


def make_moves(kind: str) -> tuple[Any, Any, Any, Any]:
    """Return four intrinsics.

    ``spread`` (offsets, source, target, real, imaginary) moves adjacent numbers of two parts from memory to lanes: offsets are
    int64, one of each 16 bytes, the last two the places of parts in a number. ``gather`` moves them back, multiplied by a
    scale; offsets are of the target. Both move half as many numbers as there are lanes. ``scale`` multiplies one in its place.
    ``conjugate`` (source, target, place of imaginary parts) stores a number's conjugate.
    """
    element = F32 if kind == "f32" else F64
    lanes = lanes_of(kind)
    held, size = ir.VectorType(element, lanes), WIDTH // lanes

    def place_of(b: Builder, base: Value, row: int, real: Value, imaginary: Value) -> Value:
        return b.add(b.add(base, I64(2 * WIDTH * (row // 2))), imaginary if row % 2 else real)

    def lane_of(b: Builder, offsets: Value, base: Value, lane: int) -> Value:
        return b.add(base, b.load(pointer(b, b.add(offsets, I64(16 * lane)), I64), align=8))

    def splat_scale(b: Builder, scale: Value) -> Value:
        return splat(b, b.fptrunc(scale, F32) if kind == "f32" else scale, lanes)

    @intrinsic
    def spread(
        _: Any, offsets: types.Integer, source: types.Integer, target: types.Integer, real: types.Integer,
        imaginary: types.Integer,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            rows = [_load(b, lane_of(b, a[0], a[1], lane), held, size) for lane in range(lanes)]
            for row, value in enumerate(_transposed(b, rows)):
                _store(b, place_of(b, a[2], row, a[3], a[4]), value, size)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    @intrinsic
    def gather(
        _: Any, offsets: types.Integer, source: types.Integer, target: types.Integer, real: types.Integer,
        imaginary: types.Integer, scale: types.Float,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            factor = splat_scale(b, a[5])
            rows = [b.fmul(_load(b, place_of(b, a[1], row, a[3], a[4]), held, size), factor) for row in range(lanes)]
            for lane, value in enumerate(_transposed(b, rows)):
                _store(b, lane_of(b, a[0], a[2], lane), value, size)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5, types.float64), emit

    @intrinsic
    def scale(_: Any, number: types.Integer, factor: types.Float) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            for place in (a[0], b.add(a[0], I64(WIDTH))):
                _store(b, place, b.fmul(_load(b, place, held, size), splat_scale(b, a[1])), size)
            return context.get_dummy_value()

        return types.void(types.int64, types.float64), emit

    @intrinsic
    def conjugate(_: Any, source: types.Integer, target: types.Integer, imaginary: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            real = b.sub(I64(WIDTH), a[2])
            _store(b, b.add(a[1], real), _load(b, b.add(a[0], real), held, size), size)
            _store(b, b.add(a[1], a[2]), b.fneg(_load(b, b.add(a[0], a[2]), held, size)), size)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), emit

    return spread, gather, scale, conjugate


def _transform(b: Builder, given: _Numbers) -> _Numbers:
    if len(given) == 2:
        return list(_sum_and_difference(b, *given))
    if len(given) == 4:
        even, even_less = _sum_and_difference(b, given[0], given[2])
        odd, (real, imaginary) = _sum_and_difference(b, given[1], given[3])
        first, third = _sum_and_difference(b, even, odd)
        # The difference by minus the imaginary unit.
        second, fourth = _sum_and_difference(b, even_less, (imaginary, b.fneg(real)))
        return [first, second, third, fourth]
    return _odd(b, given)


def _odd(b: Builder, given: _Numbers) -> _Numbers:
    """Transform an odd number of numbers: of each pair from both ends, the sum goes with cosines, the difference with sines."""
    radix = len(given)
    pairs = [_sum_and_difference(b, given[number], given[radix - number]) for number in range(1, radix // 2 + 1)]
    total = given[0]
    for added, _ in pairs:
        total = _add(b, total, added)
    found: _Numbers = [total, *given[1:]]
    for number in range(1, radix // 2 + 1):
        real, imaginary = given[0]
        turned: tuple[Value, Value] | None = None
        for other, (added, less) in enumerate(pairs, 1):
            step = number * other % radix
            # The sine of a step beyond half of the circle is minus that of the rest.
            cosine = math.cos(2 * math.pi * min(step, radix - step) / radix)
            sine = -math.sin(2 * math.pi * min(step, radix - step) / radix) * (1 if 2 * step < radix else -1)
            real = b.fadd(real, _times(b, added[0], cosine))
            imaginary = b.fadd(imaginary, _times(b, added[1], cosine))
            by_sine = _times(b, less[0], sine), _times(b, less[1], sine)
            turned = by_sine if turned is None else _add(b, turned, by_sine)
        if turned is None:
            raise ValueError(f"radix {radix}: expect 3 or more")
        sides = _sum_and_difference(b, (real, imaginary), (b.fneg(turned[1]), turned[0]))
        found[number], found[radix - number] = sides
    return found


def _add(b: Builder, x: tuple[Value, Value], y: tuple[Value, Value]) -> tuple[Value, Value]:
    return b.fadd(x[0], y[0]), b.fadd(x[1], y[1])


def _sum_and_difference(
    b: Builder, x: tuple[Value, Value], y: tuple[Value, Value]
) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
    return _add(b, x, y), (b.fsub(x[0], y[0]), b.fsub(x[1], y[1]))


def _times(b: Builder, value: Value, factor: float) -> Value:
    return b.fmul(value, ir.Constant(value.type, [ir.Constant(value.type.element, factor)] * value.type.count))


def _transposed(b: Builder, rows: list[Value]) -> list[Value]:
    """Transpose a square: blocks of half the size are exchanged, then those in them."""
    count, distance = len(rows), len(rows) // 2
    while distance:
        for row in range(count):
            if row & distance == 0:
                low, high = rows[row], rows[row + distance]
                for place, start in ((row, 0), (row + distance, distance)):
                    numbers = [
                        lane + start if lane & distance == 0 else count + lane - distance + start
                        for lane in range(count)
                    ]
                    rows[place] = b.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, count), numbers))
        distance //= 2
    return rows


def _load(b: Builder, address: Value, kind: ir.Type, align: int) -> Value:
    return b.load(pointer(b, address, kind), align=align)


def _store(b: Builder, address: Value, value: Value, align: int) -> None:
    b.store(value, pointer(b, address, value.type), align=align)
