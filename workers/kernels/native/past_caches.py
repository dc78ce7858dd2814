"""Results that are written past the caches: a line that is stored whole is not read from memory before.

Limitation: the results are not in a cache then. They are for tensors that no cache holds.
"""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir as ir

from .bits import copy_bytes
from .compiler import types
from .compiler.language import intrinsic
from .vec import F32, F64, I32, LANES, Builder, Value, VectorType, call, vload, vstore

#: Bytes of a cache line.
LINE: Final = 64


def past_caches(store: Any) -> Any:
    """Return the intrinsic that stores as another one does, one vector at a multiple of `LINE`, past the caches.

    `finish_streams` must follow.
    """

    @intrinsic
    def stream(_: Any, address: types.Integer, value: VectorType) -> Any:
        signature, emit = store.typing(None, address, value)

        def emit_past(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            found = emit(context, b, sig, a)
            stored = b.block.instructions[-1]
            element = stored.operands[0].type.element
            size = {F32: 4, F64: 8}.get(element) or element.width // 8
            stored.align = min(LINE, size * LANES)
            stored.set_metadata("nontemporal", b.module.add_metadata([I32(1)]))
            return found

        return signature, emit_past

    return stream


vstream: Final = past_caches(vstore)


@intrinsic
def finish_streams(_: Any) -> Any:
    """Make what was stored past the caches visible to other threads before any later store."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        call(b, "llvm.x86.sse.sfence", result=ir.VoidType())
        return context.get_dummy_value()

    return types.void(), emit


def stream_bytes(target: int, source: int, nbytes: int) -> None:
    """Copy bytes, past the caches where lines are whole, to a place that does not overlap with their own."""
    head = min(nbytes, -target & LINE - 1)
    copy_bytes(target, source, head)
    at = head
    while at + 2 * LINE <= nbytes:
        first, second = vload(source + at), vload(source + at + LINE)
        vstream(target + at, first)
        vstream(target + at + LINE, second)
        at += 2 * LINE
    copy_bytes(target + at, source + at, nbytes - at)
