"""Whether two layouts of one tensor are the same bytes, so that no reorder is needed between them."""

from __future__ import annotations

from .memory_desc import MemoryDesc


def same_bytes(a: MemoryDesc, b: MemoryDesc) -> bool:
    """Return whether memory written as ``a`` reads as ``b``: ``nChw16c`` of a 1 x 1 image is row-major, for one."""
    if a == b:
        return True
    if a.dims != b.dims or a.dtype != b.dtype or a.is_any or b.is_any or a.strides or b.strides:
        return False
    return a.nbytes == b.nbytes and _walk(a) == _walk(b)


def _walk(md: MemoryDesc) -> list[tuple[int, int, int]]:
    """Return (dimension, extent, stride) outermost first, without extents of 1 and with contiguous neighbours merged."""
    layout, outer, padded = md.layout, md.outer_strides(), md.padded_dims
    found = [(d, padded[d] // layout.block_of(d), outer[d]) for d in layout.order]
    step = 1
    inner: list[tuple[int, int, int]] = []
    for dim, size in reversed(layout.blocks):
        inner.append((dim, size, step))
        step *= size
    merged: list[tuple[int, int, int]] = []
    for dim, extent, stride in (*found, *reversed(inner)):
        if extent == 1:
            continue
        if merged and merged[-1][0] == dim and merged[-1][2] == extent * stride:
            merged[-1] = (dim, merged[-1][1] * extent, stride)
        else:
            merged.append((dim, extent, stride))
    return merged
