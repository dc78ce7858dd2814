"""Vectors whose lanes take turns in memory."""

from __future__ import annotations

import llvmlite.ir as ir

from .vec import LANES, VI, Builder, Value


def interleaved(b: Builder, values: list[Value]) -> list[Value]:
    """Return vectors with the first lanes of all vectors, then their second lanes, and so on; of 1, 2, 4, 8 or 16 vectors."""
    if len(values) == 1:
        return values
    return [
        b.shuffle_vector(even, odd, ir.Constant(VI, [first + lane // 2 + LANES * (lane % 2) for lane in range(LANES)]))
        for even, odd in zip(interleaved(b, values[::2]), interleaved(b, values[1::2]), strict=True)
        for first in (0, LANES // 2)
    ]
