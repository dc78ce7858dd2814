"""Views as strides and a start in the memory of their source."""

from __future__ import annotations

import itertools
from typing import Final

from poolrt.workers.desc import Concat, Convolution, MemoryDesc, item_size

from .inference.movement import resolve_slice
from .ir import Node

#: Bytes of a line of a processor's cache.
_LINE: Final = 64


def describe_view(node: Node, src: MemoryDesc, dims: tuple[int, ...]) -> tuple[MemoryDesc, int] | None:
    """Return the descriptor of a view on ``src`` in its layout, and the byte at which it starts; None if there is none.

    ``dims`` is the valid shape of the view, see `inference.movement`.
    """
    if src.layout.blocks:
        return None
    strides, start = src.outer_strides(), 0
    match node.kind:
        case "reshape":
            split = _reshape_strides(src.dims, strides, dims)
            if split is None:
                return None
            strides = split
        case "transpose":
            strides = tuple(strides[axis] for axis in node.integers("perm"))
        case "slice":
            starts, _ = resolve_slice(src.dims, node.attrs)
            start = sum(first * stride for first, stride in zip(starts, strides, strict=True))
            strides = tuple(stride * step for stride, step in zip(strides, node.integers("steps"), strict=True))
        case "expand":
            added = len(dims) - src.ndims
            kept = (0 if size == 1 else stride for size, stride in zip(src.dims, strides, strict=True))
            strides = (*(0,) * added, *kept)
        case _:
            raise RuntimeError(f"unknown view {node.kind!r}")
    return MemoryDesc(dims, src.dtype, strides=strides if dims else ()), start * item_size(src.dtype)


def describe_seen(op: Convolution, src: MemoryDesc) -> MemoryDesc | None:
    """Return the elements of ``src`` that windows of one element see as a descriptor in its layout; None if these are all.

    None, too, for other windows, and for blocks of channels.
    """
    padding = (*op.padding_l, *op.padding_r)
    if src.layout.blocks or not op.is_forward or set(op.weights.dims[2:]) != {1} or any(padding):
        return None
    if set(op.strides) == {1} or not op.dst.elements:
        return None
    images, channels, *apart = src.outer_strides()
    strides = (images, channels, *(stride * step for stride, step in zip(apart, op.strides, strict=True)))
    return MemoryDesc((*src.dims[:2], *op.dst.dims[2:]), src.dtype, strides=strides)


def find_parts(op: Concat) -> list[int] | None:
    """Return the bytes at which the sources of a concatenation begin in it if each is in one piece there, else None.

    They begin on lines of a processor's cache, and all tensors have elements.
    """
    tensors = (*op.srcs, op.dst)
    if any(md.strides or md.tag != op.dst.tag or not md.elements for md in tensors):
        return None
    lengths = [md.nbytes for md in tensors]
    rows = [
        md.outer_strides()[op.axis] * (md.padded_dims[op.axis] // md.layout.block_of(op.axis)) * item_size(md.dtype)
        for md in tensors
    ]
    *ends, total = itertools.accumulate(lengths[:-1], initial=0)
    if rows != lengths or total != lengths[-1] or any(end % _LINE for end in ends):
        return None
    return ends


def _reshape_strides(
    dims: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the strides of a reshape, or None if elements that become neighbours are not in one row.

    Both shapes are cut into the smallest groups of equal size; within a group of the old shape the dimensions must be
    one (NumPy's rule for a reshape without a copy).
    """
    old = [(size, stride) for size, stride in zip(dims, strides, strict=True) if size != 1]
    found: list[int] = []
    place = 0
    for size in wanted:
        if size == 1:
            found.append(1)
            continue
        if place == len(old):
            return None
        extent, stride = old[place]
        while extent % size:
            # The next dimension belongs to this one: they must be one row.
            place += 1
            if place == len(old) or stride != old[place][0] * old[place][1]:
                return None
            extent, stride = extent * old[place][0], old[place][1]
        rest = extent // size
        found.append(stride * rest)
        if rest == 1:
            place += 1
        else:
            old[place] = (rest, stride)
    return tuple(found)
