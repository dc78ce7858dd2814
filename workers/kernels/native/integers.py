"""Loads and stores of whole numbers for kernels, widened to int64 and cut back from it."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .vec import I8, I32, I64, Builder, Value, pointer


@intrinsic
def load_s8(_: Any, address: types.Integer) -> Any:
    """Load one signed byte."""
    return types.int64(types.int64), lambda context, b, sig, a: b.sext(b.load(pointer(b, a[0], I8), align=1), I64)


@intrinsic
def load_u8(_: Any, address: types.Integer) -> Any:
    """Load one unsigned byte."""
    return types.int64(types.int64), lambda context, b, sig, a: b.zext(b.load(pointer(b, a[0], I8), align=1), I64)


@intrinsic
def load_s32(_: Any, address: types.Integer) -> Any:
    """Load one signed number of four bytes."""
    return types.int64(types.int64), lambda context, b, sig, a: b.sext(b.load(pointer(b, a[0], I32), align=4), I64)


@intrinsic
def store_s32(_: Any, address: types.Integer, value: types.Integer) -> Any:
    """Store the low four bytes of a number."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        b.store(b.trunc(a[1], I32), pointer(b, a[0], I32), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def clear16(_: Any, address: types.Integer) -> Any:
    """Set 16 bytes to 0."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        kind = ir.VectorType(I8, 16)
        b.store(ir.Constant(kind, [0] * 16), pointer(b, a[0], kind), align=1)
        return context.get_dummy_value()

    return types.void(types.int64), emit
