"""Which columns and rows of a strided window's source taps read. Pure: implementations read it without the compiler."""

from __future__ import annotations


def phases_of(taps: int, dilation: int, stride: int) -> tuple[int, ...]:
    """Return the phases that so many taps read, a dilation apart: places modulo the stride; all for an unknown number, 0."""
    return tuple(sorted({tap * dilation % stride for tap in range(taps)})) if taps else tuple(range(stride))
