"""Single numbers at addresses, and the bits of a float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from ..compiler import types
from ..compiler.language import intrinsic
from ..vec import F32, I8, I32, I64, Builder, Value, pointer

I16: Final = ir.IntType(16)
F64: Final = ir.DoubleType()


def _reader(doc: str, kind: ir.Type, result: Any, widen: Callable[[Builder, Value], Value]) -> Any:
    def typed(_: Any, address: Any) -> Any:
        return result(types.int64), lambda context, b, sig, a: widen(b, b.load(pointer(b, a[0], kind), align=1))

    typed.__doc__ = doc
    return intrinsic(typed)


def _writer(doc: str, kind: ir.Type, argument: Any, narrow: Callable[[Builder, Value], Value]) -> Any:
    def typed(_: Any, address: Any, value: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            b.store(narrow(b, a[1]), pointer(b, a[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, argument), emit

    typed.__doc__ = doc
    return intrinsic(typed)


read_f64 = _reader("Return a float64.", F64, types.float64, lambda b, v: v)
read_f32 = _reader("Return a float32 as float64.", F32, types.float64, lambda b, v: b.fpext(v, F64))
read_s64 = _reader("Return an int64.", I64, types.int64, lambda b, v: v)
read_s32 = _reader("Return an int32 as int64.", I32, types.int64, lambda b, v: b.sext(v, I64))
read_u16 = _reader("Return 16 bits as int64.", I16, types.int64, lambda b, v: b.zext(v, I64))
read_u32 = _reader("Return 32 bits as int64.", I32, types.int64, lambda b, v: b.zext(v, I64))
read_s16 = _reader("Return an int16 as int64.", I16, types.int64, lambda b, v: b.sext(v, I64))
read_s8 = _reader("Return an int8 as int64.", I8, types.int64, lambda b, v: b.sext(v, I64))
read_u8 = _reader("Return 8 bits as int64.", I8, types.int64, lambda b, v: b.zext(v, I64))
write_f64 = _writer("Write a float64.", F64, types.float64, lambda b, v: v)
write_f32 = _writer("Write a float64 rounded to float32.", F32, types.float64, lambda b, v: b.fptrunc(v, F32))
write_64 = _writer("Write an int64.", I64, types.int64, lambda b, v: v)
write_32 = _writer("Write the low 32 bits of an int64.", I32, types.int64, lambda b, v: b.trunc(v, I32))
write_16 = _writer("Write the low 16 bits of an int64.", I16, types.int64, lambda b, v: b.trunc(v, I16))
write_8 = _writer("Write the low 8 bits of an int64.", I8, types.int64, lambda b, v: b.trunc(v, I8))


@intrinsic
def bits_of(_: Any, value: Any) -> Any:
    """Return the bits of a float64 as int64."""
    return types.int64(types.float64), lambda context, b, sig, a: b.bitcast(a[0], I64)


@intrinsic
def from_bits(_: Any, bits: Any) -> Any:
    """Return the float64 of these bits."""
    return types.float64(types.int64), lambda context, b, sig, a: b.bitcast(a[0], F64)


@intrinsic
def operand(_: Any, operands: Any, slot: Any) -> Any:
    """Return the address that a slot of the operands holds."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        start = b.bitcast(a[0], I64.as_pointer())
        return b.load(b.gep(start, [a[1]]), align=8)

    return types.int64(types.voidptr, types.int64), emit
