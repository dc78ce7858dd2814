"""Copy what indices choose: rows of bytes, or elements.

The table has the outer loops, innermost first, as (extent, bytes from step to step in src, indices and dst), then the axes
that have an index as (size, bytes from index to index in src). An item is some steps of the inner loop, of a row that is not
cut, or a piece of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .bits import copy_bytes, make_gather, make_load, make_load_index, make_store, zero_bytes
from .compiler import types
from .past_caches import LINE, finish_streams, stream_bytes
from .vec import iload, prefetch

#: Most bytes of a row that are asked for while the one before it is copied; the processor asks for the rest.
_ASKED: Final = 512


def make(
    isa: str, size: int, wide: bool, single: bool, adjacent: bool, streams: bool = False
) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature: rows of ``size`` bytes, any number if it is 0, and one axis if it is ``single``.

    Indices are ``adjacent`` along the inner loop, and elements of dst, too, if they may be gathered as vectors. Long rows that it
    ``streams`` are written past the caches: see `past_caches`.
    """
    copy_row: Any = stream_bytes if streams else copy_bytes
    load_index = make_load_index(wide)
    load, store, gather = make_load(size or 1), make_store(size or 1), make_gather(max(size, 4), wide)

    def kernel(
        begin: int, end: int, src: int, indices: int, dst: int, table: int, loops: int, count: int, chunk: int,
        src_step: int, index_step: int, dst_step: int, row: int, piece: int, axes: int, distance: int,
    ) -> None:  # fmt: skip
        limits = table + 32 * loops
        row_pieces = (row + piece - 1) // piece
        pieces = (count + chunk - 1) // chunk
        limit, stride = 0, 0
        if single:
            limit, stride = iload(limits), iload(limits + 8)
        for item in range(begin, end):
            # A division takes as long as some ten elements.
            rest, first, outer, start = item, 0, item, 0
            if row_pieces > 1:
                rest = item // row_pieces
                first = (item - rest * row_pieces) * piece
                outer = rest
            if pieces > 1:
                outer = rest // pieces
                start = (rest - outer * pieces) * chunk
            source = src + start * src_step + first
            index = indices + start * index_step
            target = dst + start * dst_step + first
            for loop in range(loops):
                position = outer
                if loop + 1 < loops:
                    extent = iload(table + 32 * loop)
                    outer //= extent
                    position -= outer * extent
                source += position * iload(table + 32 * loop + 8)
                index += position * iload(table + 32 * loop + 16)
                target += position * iload(table + 32 * loop + 24)
            nbytes = min(piece, row - first)
            steps = min(chunk, count - start)
            if adjacent:
                while steps >= 8:
                    gather(index, source, target, limit, stride, src_step)
                    steps -= 8
                    source += 8 * src_step
                    index += 8 * index_step
                    target += 8 * dst_step
            for step in range(steps):
                if streams and single and step + 1 < steps:
                    number = load_index(index + index_step)
                    number += limit if number < 0 else 0
                    for line in range(0, min(nbytes, _ASKED), LINE):
                        prefetch(source + src_step + number * stride + line)
                place, inside = source, True
                if single:
                    number = load_index(index)
                    number += limit if number < 0 else 0
                    inside = 0 <= number < limit
                    place += number * stride
                else:
                    for axis in range(axes):
                        number = load_index(index + axis * distance)
                        extent = iload(limits + 16 * axis)
                        number += extent if number < 0 else 0
                        inside &= 0 <= number < extent
                        place += number * iload(limits + 16 * axis + 8)
                if size:
                    if inside:
                        store(target, load(place))
                    else:
                        store(target, 0)
                elif inside:
                    copy_row(target, place, nbytes)
                else:
                    zero_bytes(target, nbytes)
                source += src_step
                index += index_step
                target += dst_step
        if streams:
            finish_streams()

    return kernel, types.void(*[types.int64] * 16)
