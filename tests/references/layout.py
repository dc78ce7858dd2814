"""Lay an array out as a memory descriptor says, and back, following the definition of format tags word by word."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import MemoryDesc, numpy_name

Array = NDArray[Any]
ALIGNMENT = 64


def pack(array: Array, md: MemoryDesc) -> Array:
    """Return ``array`` (logical dimensions) in ``md``'s layout as a flat array of md's type, padding zeroed.

    The result starts on a 64-byte boundary.
    """
    if array.shape != md.dims:
        raise ValueError(f"array of shape {array.shape} for {md}")
    padded = np.zeros(md.padded_dims, numpy_name(md.dtype))
    padded[tuple(slice(0, size) for size in md.dims)] = array
    split, order = _split(md)
    flat = aligned_buffer(md)
    flat[:] = padded.reshape(split).transpose(order).reshape(-1)
    return flat


def unpack(buffer: Array | bytes, md: MemoryDesc) -> Array:
    """Return the logical array that a flat buffer in ``md``'s layout holds."""
    dtype = np.dtype(numpy_name(md.dtype))
    flat = np.frombuffer(buffer, dtype, math.prod(md.padded_dims)) if md.nbytes else np.empty(0, dtype)
    split, order = _split(md)
    padded = (
        flat.reshape([split[i] for i in order]).transpose(np.argsort(np.array(order, np.int64))).reshape(md.padded_dims)
    )
    return padded[tuple(slice(0, size) for size in md.dims)].copy()


def assert_padding_is_zero(buffer: Array | bytes, md: MemoryDesc) -> None:
    """Raise AssertionError where the padded area of a blocked layout holds anything but zeros."""
    dtype = np.dtype(numpy_name(md.dtype))
    flat = np.frombuffer(buffer, dtype, math.prod(md.padded_dims)) if md.nbytes else np.empty(0, dtype)
    padding = pack(np.ones(md.dims, dtype), md) == 0
    wrong = np.flatnonzero(padding & (flat != 0))
    assert wrong.size == 0, f"{wrong.size} non-zero values in the padding of {md}, the first at element {wrong[0]}"


def aligned_buffer(md: MemoryDesc, fill: float = 0.0) -> Array:
    """Return a flat array for a memory descriptor that starts on a 64-byte boundary, filled with one value."""
    dtype = np.dtype(numpy_name(md.dtype))
    count = math.prod(md.padded_dims)
    raw = np.empty(count * dtype.itemsize + 2 * ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    flat = raw[start : start + count * dtype.itemsize].view(dtype)
    flat[:] = fill
    return flat


def _split(md: MemoryDesc) -> tuple[list[int], list[int]]:
    """Return the padded shape with every block as a dimension of its own, and the order of those in memory."""
    layout = md.layout
    split: list[int] = []
    outer: list[int] = []
    inner: dict[int, list[int]] = {}
    for dim, padded in enumerate(md.padded_dims):
        outer.append(len(split))
        blocks = [size for d, size in layout.blocks if d == dim]
        split.append(padded // layout.block_of(dim))
        inner[dim] = list(range(len(split), len(split) + len(blocks)))
        split.extend(blocks)
    order = [outer[dim] for dim in layout.order] + [inner[dim].pop(0) for dim, _ in layout.blocks]
    return split, order
