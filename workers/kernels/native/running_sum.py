"""Elements added to a sum that is kept wider: float64 of floats, int64 of integers.

A kind is ``s``, ``u`` or ``f`` with the bits of an element.
"""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir as ir

from poolrt.cachestore.deferred_dataclass import dataclass

from .compiler import types
from .compiler.language import intrinsic
from .vec import F32, F64, I32, I64, Builder, Value, VectorType, isa_of, pointer

#: Elements of a vector along an axis.
LANES: Final = 8
#: Rows side by side.
WIDE_LANES: Final = 16


@dataclass(frozen=True, slots=True)
class Sums:
    """One sum: ``load`` (address) returns an element widened, ``store`` (address, sum) cuts it, ``zero`` () is the first."""

    load: Any
    store: Any
    zero: Any


def make_sums(kind: str) -> Sums:
    """Return the functions of a sum."""
    element, wide = _types(kind)
    scalar = types.float64 if kind[0] == "f" else types.int64

    @intrinsic
    def load(_: Any, address: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return _widened(b, b.load(pointer(b, a[0], element), align=1), kind, wide)

        return scalar(types.int64), emit

    @intrinsic
    def store(_: Any, address: types.Integer, total: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            b.store(_cut(b, a[1], kind, element), pointer(b, a[0], element), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, scalar), emit

    @intrinsic
    def zero(_: Any) -> Any:
        return scalar(), lambda context, b, sig, a: wide(0)

    return Sums(load, store, zero)


def make_rows(kind: str, exclusive: bool, lanes: int = WIDE_LANES) -> tuple[Any, Any, Any]:
    """Return three intrinsics for ``lanes`` sums side by side: 16, 8 or 4.

    ``begin`` (address) loads them, ``end`` (address, sums) stores them; ``add`` (sums, addresses of src and dst) adds elements,
    stores the sums or those before as elements, and returns them.
    """
    element, sums = _types(kind)
    width = min(lanes, LANES)
    narrow, part, wide = ir.VectorType(element, width), ir.VectorType(sums, width), ir.VectorType(sums, lanes)
    held = VectorType(f"{sums} sums of {lanes} rows", wide, types.float64 if sums == F64 else types.int64)

    @intrinsic
    def begin(_: Any, address: types.Integer) -> Any:
        return held(types.int64), lambda context, b, sig, a: b.load(pointer(b, a[0], wide), align=8)

    @intrinsic
    def end(_: Any, address: types.Integer, sums: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            b.store(a[1], pointer(b, a[0], wide), align=8)
            return context.get_dummy_value()

        return types.void(types.int64, held), emit

    @intrinsic
    def add(_: Any, sums: Any, source: types.Integer, target: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            halves, nbytes = [], width * int(kind[1:]) // 8
            for half in range(lanes // width):
                # Half of a vector is widened from memory, and narrowed to it, without shuffles.
                own = ir.Constant(ir.VectorType(I32, width), list(range(half * width, half * width + width)))
                before = b.shuffle_vector(a[0], a[0], own)
                place, to = (b.add(address, I64(half * nbytes)) for address in a[1:])
                after = _sum(b, before, _widened(b, b.load(pointer(b, place, narrow), align=1), kind, part))
                b.store(_cut(b, before if exclusive else after, kind, narrow), pointer(b, to, narrow), align=1)
                halves.append(after)
            if len(halves) == 1:
                return halves[0]
            every = ir.Constant(ir.VectorType(I32, lanes), list(range(lanes)))
            return b.shuffle_vector(*halves, every)

        return held(held, types.int64, types.int64), emit

    return begin, end, add


def make_scan(kind: str, exclusive: bool, backward: bool) -> tuple[Any, Any, Any]:
    """Return three intrinsics for elements that are adjacent along the axis.

    ``vectors`` () returns no sum yet; ``scan`` (sum, addresses of src and dst) stores the sums of a vector of elements, from the
    last one if ``backward``, and returns the sum of all; ``first_lane`` (sum) returns it as a number.
    """
    element, sums = _types(kind)
    stored, wide = ir.VectorType(element, LANES), ir.VectorType(sums, LANES)
    scalar = types.float64 if kind[0] == "f" else types.int64
    held = VectorType(f"{'f' if kind[0] == 'f' else 's'}64 sums", wide, scalar)

    @intrinsic
    def vectors(_: Any) -> Any:
        return held(), lambda context, b, sig, a: ir.Constant(wide, None)

    @intrinsic
    def scan(_: Any, before: Any, source: types.Integer, target: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            none = _zeros(b, wide)
            part = _widened(b, b.load(pointer(b, a[1], stored), align=1), kind, wide)
            if backward:
                part = _lanes(b, part, none, range(LANES - 1, -1, -1))
            for distance in (1, 2, 4):
                part = _sum(b, part, _moved(b, part, none, distance))
            found = _sum(b, a[0], _moved(b, part, none, 1) if exclusive else part)
            if backward:
                found = _lanes(b, found, none, range(LANES - 1, -1, -1))
            b.store(_cut(b, found, kind, stored), pointer(b, a[2], stored), align=1)
            # The sum of this vector does not wait for those before it.
            return _sum(b, a[0], _lanes(b, part, none, [LANES - 1] * LANES))

        return held(held, types.int64, types.int64), emit

    @intrinsic
    def first_lane(_: Any, sums: Any) -> Any:
        return scalar(held), lambda context, b, sig, a: b.extract_element(a[0], I32(0))

    return vectors, scan, first_lane


def _types(kind: str) -> tuple[ir.Type, ir.Type]:
    """Return the types of an element and of a sum."""
    if kind[0] == "f":
        return F32 if kind == "f32" else F64, F64
    return ir.IntType(int(kind[1:])), I64


def _widened(b: Builder, value: Value, kind: str, wide: ir.Type) -> Value:
    if kind[1:] == "64":
        return value
    if kind[0] == "f":
        return b.fpext(value, wide)
    return (b.zext if kind[0] == "u" else b.sext)(value, wide)


def _cut(b: Builder, total: Value, kind: str, stored: ir.Type) -> Value:
    if kind[1:] == "64":
        return total
    return b.fptrunc(total, stored) if kind[0] == "f" else b.trunc(total, stored)


def _sum(b: Builder, x: Value, y: Value) -> Value:
    lanes = getattr(x.type, "element", x.type)
    return b.fadd(x, y) if lanes == F64 else b.add(x, y)


def _moved(b: Builder, value: Value, none: Value, distance: int) -> Value:
    """Return lanes moved to higher numbers, zeros below them."""
    return _lanes(b, value, none, [(lane - distance) % (2 * LANES) for lane in range(LANES)])


def _zeros(b: Builder, wide: ir.Type) -> Value:
    """Return lanes of zeros; for AVX-512, LLVM does not know that they are: it would move lanes above zeros by expansions.

    These take several times as long as shuffles.
    """
    zeros = ir.Constant(wide, None)
    if isa_of(b) != "x86-64-v4":
        return zeros
    return b.asm(ir.FunctionType(wide, [wide]), "", "=v,0", [zeros], False)


def _lanes(b: Builder, value: Value, other: Value, numbers: Any) -> Value:
    return b.shuffle_vector(value, other, ir.Constant(ir.VectorType(I32, LANES), list(numbers)))
