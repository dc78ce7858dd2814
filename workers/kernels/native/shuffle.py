"""Shuffle the channels of an activation in blocks of 16 channels: each lane is copied, or each block permuted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .compiler.language import intrinsic
from .vec import (
    I16,
    I64,
    VI,
    VM,
    Builder,
    Value,
    call,
    fload,
    fstore,
    iload,
    pointer,
    vector,
    vload,
    vset,
    vstore,
)


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel, of 4-byte elements.

    Arguments: addresses of src and dst; the tables ``block_table`` (for each block of dst, the start of its records and
    their end, in bytes) and ``records`` (int64: a block of src; the lanes of dst that it has, as bits; then, as int32, the
    lane of src of each of 16 lanes); blocks and positions of an image, and positions of an item of work. An item is a run of
    positions of one block of dst. Lanes that no record has are stored as zeros.
    """
    permutes = isa == "x86-64-v4"

    def copy_lanes(src: int, dst: int, record: int, count: int) -> None:
        bits = iload(record + 8)
        for lane in range(16):
            if bits >> lane & 1:
                pair = iload(record + 16 + (lane >> 1) * 8)
                at = src + (pair >> 32 * (lane & 1) & 15) * 4
                to = dst + lane * 4
                for position in range(count):
                    fstore(to + position * 64, fload(at + position * 64))

    def copy_run(src: int, dst: int, plane: int, first: int, last: int, count: int) -> None:
        zero = vset(np.float32(0.0))
        if not permutes:
            for position in range(count):
                vstore(dst + position * 64, zero)
            for record in range(first, last, _RECORD):
                copy_lanes(src + iload(record) * plane, dst, record, count)
            return
        position = 0
        while position + 4 <= count:
            value0 = zero
            value1 = zero
            value2 = zero
            value3 = zero
            for record in range(first, last, _RECORD):
                at = src + iload(record) * plane + position * 64
                value0 = _take(value0, vload(at), record)
                value1 = _take(value1, vload(at + 64), record)
                value2 = _take(value2, vload(at + 128), record)
                value3 = _take(value3, vload(at + 192), record)
            to = dst + position * 64
            vstore(to, value0)
            vstore(to + 64, value1)
            vstore(to + 128, value2)
            vstore(to + 192, value3)
            position += 4
        while position < count:
            value0 = zero
            for record in range(first, last, _RECORD):
                value0 = _take(value0, vload(src + iload(record) * plane + position * 64), record)
            vstore(dst + position * 64, value0)
            position += 1

    def shuffle(
        begin: int, end: int, src: int, dst: int, block_table: int, records: int, blocks: int, positions: int, run: int
    ) -> None:
        runs = (positions + run - 1) // run
        plane = positions * 64
        for item in range(begin, end):
            start = item % runs * run
            block = item // runs % blocks
            image = item // (runs * blocks)
            first = records + iload(block_table + block * 16)
            last = records + iload(block_table + block * 16 + 8)
            at = src + image * blocks * plane + start * 64
            to = dst + (image * blocks + block) * plane + start * 64
            copy_run(at, to, plane, first, last, min(run, positions - start))

    return shuffle, types.void(*[types.int64] * 9)


#: Bytes of a record.
_RECORD = 80


@intrinsic
def _take(_: Any, value: Any, source: Any, record: types.Integer) -> Any:
    """Return ``value`` with the lanes that a record has, taken from ``source``. Only x86-64-v4 can."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        lanes = b.load(pointer(b, b.add(a[2], I64(16)), VI), align=8)
        mask = b.bitcast(b.load(pointer(b, b.add(a[2], I64(8)), I16), align=8), VM)
        return b.select(mask, call(b, "llvm.x86.avx512.permvar.sf.512", a[1], lanes), a[0])

    return vector(vector, vector, types.int64), emit
