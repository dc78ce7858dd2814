"""Scratch memory of a kernel on its stack: nothing is booked for it, and it stays in the first-level cache."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .vec import I8, I64, Builder, Value


def stack_room(nbytes: int) -> Any:
    """Return an intrinsic that returns the address of memory on the stack, the same at each call in one place."""

    def typed(_: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            with b.goto_entry_block():
                place = b.alloca(ir.ArrayType(I8, nbytes))
                place.align = 64
            return b.ptrtoint(place, I64)

        return types.int64(), emit

    return intrinsic(typed)
