"""Atomic operations, futexes and calls by address for kernels, for loops that never enter Python.

All atomics are sequentially consistent; an address is an int64 in bytes, aligned to 8 (a futex word to 4).
"""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .vec import I32, I64, Builder, Value, allocate, call, pointer

_FUTEX: Final = 202  # the number of the system call, x86-64
_CLOCK_GETTIME: Final = 228
_GETCPU: Final = 309
_SET_AFFINITY: Final = 203
_GET_AFFINITY: Final = 204
_MONOTONIC: Final = 1
_WAIT_PRIVATE: Final = 128
_WAKE_PRIVATE: Final = 129
_ORDER: Final = "seq_cst"


@intrinsic
def atomic_load(_: Any, address: types.Integer) -> Any:
    """Load an int64."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return b.load_atomic(pointer(b, a[0], I64), _ORDER, 8)

    return types.int64(types.int64), emit


@intrinsic
def atomic_store(_: Any, address: types.Integer, value: types.Integer) -> Any:
    """Store an int64."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        b.store_atomic(a[1], pointer(b, a[0], I64), _ORDER, 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def atomic_add(_: Any, address: types.Integer, value: types.Integer) -> Any:
    """Add to an int64 and return its former value."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return b.atomic_rmw("add", pointer(b, a[0], I64), a[1], _ORDER)

    return types.int64(types.int64, types.int64), emit


@intrinsic
def compare_and_swap(_: Any, address: types.Integer, expected: types.Integer, value: types.Integer) -> Any:
    """Store a value if an int64 is the expected one; return whether it was."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        pair = b.cmpxchg(pointer(b, a[0], I64), a[1], a[2], _ORDER, _ORDER)
        return b.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), emit


@intrinsic
def pause(_: Any) -> Any:
    """Hint to the processor that this is a spin loop (x86 PAUSE)."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        call(b, "llvm.x86.sse2.pause", result=ir.VoidType())
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def futex_wait(_: Any, address: types.Integer, value: types.Integer, milliseconds: types.Integer) -> Any:
    """Sleep while the 32-bit word at an address is the low half of ``value``, at most so long; wake-ups may be spurious."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        limit = allocate(b, ir.ArrayType(I64, 2))
        seconds = b.sdiv(a[2], I64(1000))
        b.store(seconds, b.gep(limit, [I32(0), I32(0)]))
        rest = b.mul(b.sub(a[2], b.mul(seconds, I64(1000))), I64(1_000_000))
        b.store(rest, b.gep(limit, [I32(0), I32(1)]))
        word = b.and_(a[1], I64(0xFFFFFFFF))
        system_call(b, I64(_FUTEX), a[0], I64(_WAIT_PRIVATE), word, b.ptrtoint(limit, I64), I64(0), I64(0))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


@intrinsic
def futex_wake(_: Any, address: types.Integer) -> Any:
    """Wake every thread that sleeps at an address."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        zero = I64(0)
        system_call(b, I64(_FUTEX), a[0], I64(_WAKE_PRIVATE), I64(0x7FFFFFFF), zero, zero, zero)
        return context.get_dummy_value()

    return types.void(types.int64), emit


@intrinsic
def read_clock(_: Any, address: types.Integer) -> Any:
    """Write the monotonic time to an address: seconds, then nanoseconds, an int64 each."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        zero = I64(0)
        system_call(b, I64(_CLOCK_GETTIME), I64(_MONOTONIC), a[0], zero, zero, zero, zero)
        return context.get_dummy_value()

    return types.void(types.int64), emit


@intrinsic
def read_ticks(_: Any) -> Any:
    """Return the time stamp counter: ticks of a steady rate, the same for all processors; some 10 ns."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return call(b, "llvm.readcyclecounter", result=I64)

    return types.int64(), emit


@intrinsic
def stack_room(_: Any) -> Any:
    """Return the address of 384 bytes on the stack, which last as long as the calling function runs."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        return b.ptrtoint(allocate(b, ir.ArrayType(I64, 48)), I64)

    return types.int64(), emit


@intrinsic
def read_processor(_: Any, room: types.Integer) -> Any:
    """Return the number of the processor that runs the calling thread; ``room`` is the address of an int64 to overwrite."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        zero = I64(0)
        b.store(zero, pointer(b, a[0], I64))
        system_call(b, I64(_GETCPU), a[0], zero, zero, zero, zero, zero)
        return b.load(pointer(b, a[0], I64))

    return types.int64(types.int64), emit


@intrinsic
def get_affinity(_: Any, address: types.Integer, nbytes: types.Integer) -> Any:
    """Write the set of processors that the calling thread may run on, a bit each; return its bytes, negative for an error."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        zero = I64(0)
        return system_call(b, I64(_GET_AFFINITY), zero, a[1], a[0], zero, zero, zero)

    return types.int64(types.int64, types.int64), emit


@intrinsic
def set_affinity(_: Any, address: types.Integer, nbytes: types.Integer) -> Any:
    """Set the processors that the calling thread may run on, as `get_affinity` writes them; return 0, or else an error."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        zero = I64(0)
        return system_call(b, I64(_SET_AFFINITY), zero, a[1], a[0], zero, zero, zero)

    return types.int64(types.int64, types.int64), emit


@intrinsic
def call_kernel(_: Any, function: types.Integer, blob: types.Integer) -> Any:
    """Call a native kernel's entry point with packed arguments; return 0, or for a failure the address that it wrote or 1."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        room = allocate(b, ir.ArrayType(I64, 8))
        raised = b.gep(room, [I32(0), I32(4)])
        b.store(I64(0), raised)
        kind = ir.FunctionType(I32, [I64, I64, I64])
        entry = b.inttoptr(a[0], kind.as_pointer())
        status = b.call(entry, [b.ptrtoint(room, I64), b.ptrtoint(raised, I64), a[1]])
        address = b.load(raised)
        failure = b.select(b.icmp_unsigned("==", address, I64(0)), I64(1), address)
        return b.select(b.icmp_unsigned("==", status, I32(0)), I64(0), failure)

    return types.int64(types.int64, types.int64), emit


@intrinsic
def call_function(_: Any, function: types.Integer, argument: types.Integer) -> Any:
    """Call a C function by its address with one int64, which those without arguments do not read; return its result."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        kind = ir.FunctionType(I64, [I64])
        return b.call(b.inttoptr(a[0], kind.as_pointer()), [a[1]])

    return types.int64(types.int64, types.int64), emit


def system_call(b: Builder, *arguments: Value) -> Value:
    """Call the system: its number of the call and six arguments, int64; return what it returns."""
    kind = ir.FunctionType(I64, [I64] * 7)
    constraints = "={rax},{rax},{rdi},{rsi},{rdx},{r10},{r8},{r9},~{rcx},~{r11},~{memory}"
    return b.call(ir.InlineAsm(kind, "syscall", constraints, side_effect=True), list(arguments))
