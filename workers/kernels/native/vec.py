"""Explicit vectors of 16 floats for kernels: nothing is left to the guesses of LLVM's vectoriser.

Arithmetic is on vectors of float32 or of float64; loads and stores here are of float32, `elements` has those of all types.

Every function here is an intrinsic. An *address* is an int64 in bytes. A level without 512-bit registers gets the
same code: LLVM splits a vector into two or four registers. Comparisons with NaN are stated if they matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import llvmlite.ir as ir
from llvmlite.ir import IRBuilder
from llvmlite.ir.values import Value as IRValue

from .compiler import types
from .compiler.language import intrinsic

LANES: Final = 16
#: Bytes of one vector.
WIDTH: Final = 4 * LANES
#: ISA levels that multiply and add with one rounding.
FUSES: Final = ("x86-64-v3", "x86-64-v4")

I1: Final = ir.IntType(1)
I8: Final = ir.IntType(8)
I16: Final = ir.IntType(16)
I32: Final = ir.IntType(32)
I64: Final = ir.IntType(64)
F32: Final = ir.FloatType()
F64: Final = ir.DoubleType()
VF: Final = ir.VectorType(F32, LANES)
#: Half of such a vector: a register of 256 bits.
HALF: Final = ir.VectorType(F32, LANES // 2)
VD: Final = ir.VectorType(F64, LANES)
VI: Final = ir.VectorType(I32, LANES)
VM: Final = ir.VectorType(I1, LANES)

Builder: TypeAlias = IRBuilder
Value: TypeAlias = IRValue


class VectorType(types.Type):
    """The type of a vector of 16 numbers; ``scalar`` is that of one of them."""

    __slots__ = ("lanes", "scalar")

    def __init__(self, name: str, lanes: ir.Type, scalar: types.Type) -> None:
        super().__init__(f"{name}x16", lanes)
        self.lanes, self.scalar = lanes, scalar


vector: Final = VectorType("f32", VF, types.float32)
doubles: Final = VectorType("f64", VD, types.float64)


def constant(value: float, kind: ir.Type = VF) -> ir.Constant:
    """Return a vector constant with one value in every lane."""
    return ir.Constant(kind, [ir.Constant(kind.element, value)] * LANES)


def apply(builder: Builder, name: str, *args: Value) -> Value:
    """Call LLVM's intrinsic ``name`` for the type of its arguments, which is that of its result."""
    kind = args[0].type
    bits = 64 if kind.element == F64 else 32
    return call(builder, f"llvm.{name}.v{kind.count}f{bits}", *args, result=kind)


def call(builder: Builder, name: str, *args: Value, result: ir.Type = VF) -> Value:
    """Call an LLVM intrinsic by its full name."""
    kind = ir.FunctionType(result, [a.type for a in args])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, list(args))


def splat(builder: Builder, scalar: Value, lanes: int = LANES) -> Value:
    """Return a vector with ``scalar`` in every lane."""
    undefined = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, scalar, I32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def some_lanes(builder: Builder, value: Value, count: int, first: int = 0) -> Value:
    """Return ``count`` lanes of a vector of 16, from number ``first`` on."""
    if count == LANES:
        return value
    numbers = ir.Constant(ir.VectorType(I32, count), [*range(first, first + count)])
    return builder.shuffle_vector(value, value, numbers)


def fma(builder: Builder, a: Value, b: Value, c: Value) -> Value:
    """Return a * b + c, fused if the level can, else as two operations."""
    return apply(builder, "fmuladd", a, b, c)


def product_error(builder: Builder, a: Value, b: Value, product: Value) -> Value:
    """Return a * b - product, what a product of float32 has lost by rounding: exact on every level.

    Limitation: of float64 it is 0 on levels without FMA.
    """
    if a.type == VD or isa_of(builder) in FUSES:
        return fma(builder, a, b, builder.fneg(product))
    wide = builder.fmul(*(builder.fpext(value, VD) for value in (a, b)))
    return builder.fptrunc(builder.fsub(wide, builder.fpext(product, VD)), VF)


def pointer(builder: Builder, address: Value, kind: ir.Type) -> Value:
    """Return an address as a pointer to ``kind``."""
    return builder.inttoptr(address, kind.as_pointer())


def allocate(builder: Builder, kind: ir.Type) -> Value:
    """Return the address of memory of the function that is called, which begins with anything."""
    with builder.goto_entry_block():
        return builder.alloca(kind)


def load(builder: Builder, address: Value, kind: ir.Type = VF) -> Value:
    """Load a vector of float32 from an address that need not be aligned."""
    return builder.load(pointer(builder, address, kind), align=4)


def store(builder: Builder, address: Value, value: Value) -> None:
    """Store a vector of float32 to an address that need not be aligned."""
    builder.store(value, pointer(builder, address, value.type), align=4)


def lanes_below(builder: Builder, count: Value) -> Value:
    """Return a mask of the lanes whose number is below ``count`` (int64)."""
    numbers = ir.Constant(VI, list(range(LANES)))
    return builder.icmp_signed("<", numbers, splat(builder, builder.trunc(count, I32)))


@intrinsic
def vload(_: Any, address: types.Integer) -> Any:
    """Load 16 floats from an address, aligned or not."""
    return vector(types.int64), lambda context, b, sig, a: load(b, a[0])


@intrinsic
def vstore(_: Any, address: types.Integer, value: VectorType) -> Any:
    """Store 16 floats to an address, aligned or not."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        store(b, a[0], a[1])
        return context.get_dummy_value()

    return types.void(types.int64, vector), emit


@intrinsic
def vload_part(_: Any, address: types.Integer, count: types.Integer) -> Any:
    """Load the first ``count`` (0 to 16) floats, zeros in the other lanes; memory behind them is not touched."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        where, mask = pointer(b, a[0], VF), lanes_below(b, a[1])
        return call(b, "llvm.masked.load.v16f32.p0", where, I32(4), mask, constant(0.0))

    return vector(types.int64, types.int64), emit


@intrinsic
def vkeep(_: Any, value: VectorType, count: types.Integer) -> Any:
    """Return the first ``count`` (0 to 16) lanes of a vector, zeros in the others."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return b.select(lanes_below(b, a[1]), a[0], ir.Constant(a[0].type, None))

    return value(value, types.int64), emit


@intrinsic
def vkeep_or(_: Any, value: VectorType, count: types.Integer, other: VectorType) -> Any:
    """Return the first ``count`` (0 to 16) lanes of a vector, those of ``other`` behind them."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return b.select(lanes_below(b, a[1]), a[0], a[2])

    return value(value, types.int64, value), emit


@intrinsic
def vload_inside(_: Any, address: types.Integer, first: types.Integer, limit: types.Integer, other: VectorType) -> Any:
    """Load the floats at indices first to first + 15 in [0, limit); ``other`` elsewhere, where memory is not read.

    Limitation: indices are below 2**31.
    """

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        base, index, end, fill = a
        numbers = b.add(splat(b, b.trunc(index, I32)), ir.Constant(VI, list(range(LANES))))
        mask = b.icmp_unsigned("<", numbers, splat(b, b.trunc(end, I32)))
        where = pointer(b, b.add(base, b.shl(index, I64(2))), VF)
        return call(b, "llvm.masked.load.v16f32.p0", where, I32(4), mask, fill)

    return vector(types.int64, types.int64, types.int64, vector), emit


@intrinsic
def dcount_inside(_: Any, first: types.Integer, step: types.Integer, limit: types.Integer) -> Any:
    """Return what `vcount_inside` does, as float64."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return _counts(b, a, VD)

    return doubles(types.int64, types.int64, types.int64), emit


@intrinsic
def vcount_inside(_: Any, first: types.Integer, step: types.Integer, limit: types.Integer) -> Any:
    """Return 1 in each lane whose index (first, first + step, ...) is in [0, limit), 0 elsewhere.

    Limitation: indices are below 2**31.
    """

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return _counts(b, a, VF)

    return vector(types.int64, types.int64, types.int64), emit


def _counts(b: Builder, a: list[Value], kind: ir.Type) -> Value:
    start, distance, end = (splat(b, b.trunc(value, I32)) for value in a)
    index = b.add(start, b.mul(ir.Constant(VI, list(range(LANES))), distance))
    return b.select(b.icmp_unsigned("<", index, end), constant(1.0, kind), constant(0.0, kind))


@intrinsic
def vodd(_: Any, low: VectorType, high: VectorType) -> Any:
    """Return the lanes of odd number of two vectors that follow one another."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return b.shuffle_vector(a[0], a[1], ir.Constant(VI, list(range(1, 2 * LANES, 2))))

    return low(low, low), emit


@intrinsic
def veven(_: Any, low: VectorType, high: VectorType) -> Any:
    """Return the lanes of even number of two vectors that follow one another."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return b.shuffle_vector(a[0], a[1], ir.Constant(VI, list(range(0, 2 * LANES, 2))))

    return low(low, low), emit


@intrinsic
def vbroadcast(_: Any, address: types.Integer) -> Any:
    """Load one float and return it in every lane."""
    return vector(types.int64), lambda context, b, sig, a: splat(b, b.load(pointer(b, a[0], F32), align=4))


@intrinsic
def vset(_: Any, scalar: types.Float) -> Any:
    """Return a float32 in every lane."""
    return vector(types.float32), lambda context, b, sig, a: splat(b, a[0])


@intrinsic
def dset(_: Any, scalar: types.Float) -> Any:
    """Return a float64 in every lane."""
    return doubles(types.float64), lambda context, b, sig, a: splat(b, a[0])


@intrinsic
def vwiden(_: Any, value: VectorType) -> Any:
    """Return float32 as float64."""
    return doubles(vector), lambda context, b, sig, a: b.fpext(a[0], VD)


@intrinsic
def vnarrow(_: Any, value: VectorType) -> Any:
    """Return float64 as float32, rounded."""
    return vector(doubles), lambda context, b, sig, a: b.fptrunc(a[0], VF)


@intrinsic
def fload(_: Any, address: types.Integer) -> Any:
    """Load one float32."""
    return types.float32(types.int64), lambda context, b, sig, a: b.load(pointer(b, a[0], F32), align=4)


@intrinsic
def fstore(_: Any, address: types.Integer, value: types.Float) -> Any:
    """Store one float32."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        b.store(a[1], pointer(b, a[0], F32), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), emit


@intrinsic
def dload(_: Any, address: types.Integer) -> Any:
    """Load one float64."""
    return types.float64(types.int64), lambda context, b, sig, a: b.load(pointer(b, a[0], F64), align=8)


@intrinsic
def dstore(_: Any, address: types.Integer, value: types.Float) -> Any:
    """Store one float64."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        b.store(a[1], pointer(b, a[0], F64), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.float64), emit


@intrinsic
def iload(_: Any, address: types.Integer) -> Any:
    """Load one int64: an item of a table."""
    return types.int64(types.int64), lambda context, b, sig, a: b.load(pointer(b, a[0], I64), align=8)


@intrinsic
def sload(_: Any, address: types.Integer) -> Any:
    """Load one int32 as an int64."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return b.sext(b.load(pointer(b, a[0], I32), align=4), I64)

    return types.int64(types.int64), emit


@intrinsic
def vload_same(_: Any, address: types.Integer, numbers: types.Integer, number: types.Integer) -> Any:
    """Load 16 floats, 0 in place of those whose int32 among 16 ``numbers`` is not ``number``."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        known = b.load(pointer(b, a[1], VI), align=4)
        same = b.icmp_signed("==", known, splat(b, b.trunc(a[2], I32)))
        return b.select(same, load(b, a[0]), constant(0.0))

    return vector(types.int64, types.int64, types.int64), emit


@intrinsic
def vload_marked(_: Any, address: types.Integer, marks: types.Integer) -> Any:
    """Load 16 floats, 0 in place of those whose byte among 16 ``marks`` is 0."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        known = b.load(pointer(b, a[1], ir.VectorType(I8, LANES)), align=1)
        marked = b.icmp_signed("!=", known, ir.Constant(ir.VectorType(I8, LANES), [0] * LANES))
        return b.select(marked, load(b, a[0]), constant(0.0))

    return vector(types.int64, types.int64), emit


def emit_prefetch(b: Builder, address: Value, locality: int) -> None:
    """Ask for the cache line of an address, for reading: 3 in the first-level cache, 2 in the second-level cache."""
    call(b, "llvm.prefetch.p0", pointer(b, address, I8), I32(0), I32(locality), I32(1), result=ir.VoidType())


@intrinsic
def prefetch(_: Any, address: types.Integer) -> Any:
    """Ask for the cache line of an address, for reading, in the second-level cache."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        emit_prefetch(b, a[0], 2)
        return context.get_dummy_value()

    return types.void(types.int64), emit


def _binary(doc: str, emit_value: Any) -> Any:
    def typed(_: Any, x: VectorType, y: VectorType) -> Any:
        return x(x, x), lambda context, b, sig, a: emit_value(b, a[0], a[1])

    typed.__doc__ = doc
    return intrinsic(typed)


def unary(doc: str, emit_value: Any) -> Any:
    """Return an intrinsic of one vector."""

    def typed(_: Any, x: VectorType) -> Any:
        return x(x), lambda context, b, sig, a: emit_value(b, a[0])

    typed.__doc__ = doc
    return intrinsic(typed)


def maximum(b: Builder, x: Value, y: Value) -> Value:
    """Return x if x > y, else y: one instruction; y if either is NaN."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def minimum(b: Builder, x: Value, y: Value) -> Value:
    """Return x if x < y, else y: one instruction; y if either is NaN."""
    return b.select(b.fcmp_ordered("<", x, y), x, y)


def larger(b: Builder, x: Value, y: Value) -> Value:
    """Return the larger of two, NaN if either is."""
    return _or_nan(b, x, maximum(b, x, y))


def smaller(b: Builder, x: Value, y: Value) -> Value:
    """Return the smaller of two, NaN if either is."""
    return _or_nan(b, x, minimum(b, x, y))


def _or_nan(b: Builder, x: Value, found: Value) -> Value:
    """Return ``found`` with all bits set in the lanes of which x is NaN: a selection takes longer without AVX."""
    whole = ir.VectorType(I64 if x.type == VD else I32, LANES)
    is_lost = b.sext(b.fcmp_unordered("uno", x, x), whole)
    return b.bitcast(b.or_(b.bitcast(found, whole), is_lost), x.type)


def is_negative(b: Builder, x: Value) -> Value:
    """Return a mask of the lanes that have the sign bit, -0 among them: a selection by it needs no comparison in AVX2."""
    whole = ir.VectorType(I64 if x.type == VD else I32, LANES)
    return b.icmp_signed("<", b.bitcast(x, whole), ir.Constant(whole, [0] * LANES))


def relu(b: Builder, x: Value) -> Value:
    """Return max(0, x); NaN stays NaN."""
    return maximum(b, constant(0.0, x.type), x)


vadd = _binary("Return x + y.", lambda b, x, y: b.fadd(x, y))
vsub = _binary("Return x - y.", lambda b, x, y: b.fsub(x, y))
vmul = _binary("Return x * y.", lambda b, x, y: b.fmul(x, y))
vdiv = _binary("Return x / y.", lambda b, x, y: b.fdiv(x, y))
vmax = _binary("Return x if x > y, else y (y if either is NaN).", maximum)
vmin = _binary("Return x if x < y, else y (y if either is NaN).", minimum)
vcopysign = _binary("Return x with the signs of y.", lambda b, x, y: apply(b, "copysign", x, y))
vrelu = unary("Return max(0, x); NaN stays NaN.", relu)
vneg = unary("Return -x.", lambda b, x: b.fneg(x))
vabs = unary("Return |x|.", lambda b, x: apply(b, "fabs", x))
vsqrt = unary("Return the square roots, correctly rounded.", lambda b, x: apply(b, "sqrt", x))


@intrinsic
def vfma(_: Any, x: VectorType, y: VectorType, z: VectorType) -> Any:
    """Return x * y + z, fused if the level has FMA."""
    return x(x, x, x), lambda context, b, sig, a: fma(b, *a)


@intrinsic
def vselect_gt(_: Any, x: VectorType, y: VectorType, yes: VectorType, no: VectorType) -> Any:
    """Return ``yes`` if x > y, else ``no`` (``no`` if either is NaN)."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return b.select(b.fcmp_ordered(">", a[0], a[1]), a[2], a[3])

    return x(x, x, x, x), emit


@intrinsic
def vsum(_: Any, value: VectorType) -> Any:
    """Return the sum of the lanes, added pairwise."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return fold(b, a[0], lambda b, x, y: b.fadd(x, y))

    return value.scalar(value), emit


@intrinsic
def vmax_lane(_: Any, value: VectorType) -> Any:
    """Return the largest lane."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return fold(b, a[0], maximum)

    return value.scalar(value), emit


def fold(b: Builder, value: Value, combine: Callable[[Builder, Value, Value], Value]) -> Value:
    """Combine the upper half of the lanes into the lower half, four times, and return lane 0."""
    undefined = ir.Constant(value.type, ir.Undefined)
    for distance in (8, 4, 2, 1):
        lanes = ir.Constant(VI, [(lane + distance) % LANES for lane in range(LANES)])
        value = combine(b, value, b.shuffle_vector(value, undefined, lanes))
    return b.extract_element(value, I32(0))


def isa_of(b: Builder) -> str:
    """Return the ISA level that a kernel is made for, nothing if it is unknown."""
    found: str = getattr(b.module, "poolrt_isa", "")
    return found
