"""Lay an array out as a memory descriptor says, and back, following the definition of format tags word by word."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from poolrt.workers.desc import MemoryDesc, item_size

from .data_types import converted, numpy_type

Array = NDArray[Any]
ALIGNMENT = 64


def pack(array: Array, md: MemoryDesc) -> Array:
    """Return ``array`` (logical dimensions) in ``md``'s layout as a flat array of md's type, padding and gaps zeroed.

    Values are rounded to md's type. The result starts on a 64-byte boundary.
    """
    if array.shape != md.dims:
        raise ValueError(f"array of shape {array.shape} for {md}")
    values = array if array.dtype == numpy_type(md.dtype) else converted(array, md.dtype)
    flat = aligned_buffer(md)
    if md.strides:
        _strided(flat, md)[...] = values
        return flat
    padded = np.zeros(md.padded_dims, numpy_type(md.dtype))
    padded[tuple(slice(0, size) for size in md.dims)] = values
    split, order = _split(md)
    flat[:] = padded.reshape(split).transpose(order).reshape(-1)
    return flat


def unpack(buffer: Array | bytes, md: MemoryDesc) -> Array:
    """Return the logical array that a flat buffer in ``md``'s layout holds."""
    flat = _flat(buffer, md)
    if md.strides:
        return _strided(flat, md).copy()
    split, order = _split(md)
    padded = (
        flat.reshape([split[i] for i in order]).transpose(np.argsort(np.array(order, np.int64))).reshape(md.padded_dims)
    )
    return padded[tuple(slice(0, size) for size in md.dims)].copy()


def between(buffer: Array | bytes, md: MemoryDesc) -> Array:
    """Return what a flat buffer holds besides elements: the padding of blocks, the gaps of strides."""
    outside = pack(np.ones(md.dims, numpy_type(md.dtype)), md) == 0
    return np.asarray(_flat(buffer, md)[outside])


def assert_padding_is_zero(buffer: Array | bytes, md: MemoryDesc) -> None:
    """Raise AssertionError where the padded area of a blocked layout holds anything but zeros."""
    wrong = np.flatnonzero(between(buffer, md) != 0)
    assert wrong.size == 0, f"{wrong.size} non-zero values in the padding of {md}, the first is number {wrong[0]}"


def aligned_buffer(md: MemoryDesc, fill: float = 0.0) -> Array:
    """Return a flat array for a memory descriptor that starts on a 64-byte boundary, filled with one value."""
    raw = np.empty(md.nbytes + 2 * ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    flat = raw[start : start + md.nbytes].view(numpy_type(md.dtype))
    flat[:] = fill
    return flat


def _flat(buffer: Array | bytes, md: MemoryDesc) -> Array:
    dtype = numpy_type(md.dtype)
    return np.frombuffer(buffer, np.uint8, md.nbytes).view(dtype) if md.nbytes else np.empty(0, dtype)


def _strided(flat: Array, md: MemoryDesc) -> Array:
    return as_strided(flat, md.dims, [stride * item_size(md.dtype) for stride in md.strides])


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
