"""Describe a change of layout as nests of strided loops. Pure.

Every dimension is cut at the block sizes of both layouts into digits; a digit has one stride in each layout. A padded
dimension gives a nest for its whole blocks, one for the rest and one that zeroes the padding, unless the padding is
adjacent to what the nest of the rest writes. Nests do not overlap.
"""

from __future__ import annotations

import itertools
import math
from typing import Final, NamedTuple

from ...desc import MemoryDesc
from .blocks import LANES

#: Contiguous or transposed lengths are cut here, so that work divides over threads.
PIECE: Final = 4096
#: Elements between rows of dst whose lines compete for few of the 64 sets of the first-level cache. Processors ask for the lines
#: of all stores that wait, so lines of many such rows, written in turn, have left the cache again before they are written.
_COMPETING: Final = 256
#: Elements of such rows that are written in turn, at most; a vector's of each row in any case.
_IN_TURN: Final = 512
#: Pieces that other transpositions are cut into, and the elements of each, at least.
_SHARES: Final = 8
_LEAST: Final = 16384


class Loop(NamedTuple):
    """One loop: extent and the strides in elements of source and destination."""

    extent: int
    src: int
    dst: int


class Nest(NamedTuple):
    """Loops, outermost in the destination first, from an offset in elements of source and destination.

    ``pads`` if zeros follow the adjacent elements in the destination, up to 16.
    """

    loops: tuple[Loop, ...]
    src: int = 0
    dst: int = 0
    pads: bool = False


class IncompatibleBlocks(ValueError):
    """The block sizes of two layouts do not divide one another. Raised by `copies`."""


def copies(src: MemoryDesc, dst: MemoryDesc) -> list[Nest]:
    """Return the nests that together move every element from one layout to the other. Raises IncompatibleBlocks."""
    return _combined([_elements(src, dst, dim) for dim in range(dst.ndims)])


def fills(src: MemoryDesc, dst: MemoryDesc) -> list[Nest]:
    """Return the nests over the padding of ``dst`` that ``src`` does not have and `copies` leaves out.

    Their source strides mean nothing.
    """
    adjacent = _adjacent(src, dst)
    order = sorted(range(dst.ndims), key=lambda dim: dim == adjacent)
    found = []
    for number, dim in enumerate(order):
        if dim != adjacent and dst.dims[dim] < dst.padded_dims[dim] and not _keeps_padding(src, dst, dim):
            before = [_range(dst, dst, other, 0, _covered(src, dst, other)) for other in order[:number]]
            padding = _range(dst, dst, dim, dst.dims[dim], dst.padded_dims[dim])
            after = [_range(dst, dst, other, 0, dst.padded_dims[other]) for other in order[number + 1 :]]
            found += _combined([*before, padding, *after])
    return found


def _adjacent(src: MemoryDesc, dst: MemoryDesc) -> int | None:
    """Return the dimension whose padding follows its last elements in a vector of 16, or None."""
    if not dst.layout.blocks:
        return None
    dim, size = dst.layout.blocks[-1]
    only = dst.layout.block_of(dim) == size == 16 and src.layout.block_of(dim) == 1
    return dim if only and dst.dims[dim] % 16 else None


def common_group(nests: list[Nest], most: int) -> int:
    """Return how many adjacent elements all nests move together, and nothing further, if it is up to ``most``; else 1.

    These elements move faster as a single one of their width.
    """
    extents = {loop.extent for nest in nests for loop in nest.loops if loop.src == loop.dst == 1}
    if len(extents) != 1:
        return 1
    (size,) = extents
    if size > most or most % size or any(nest.pads or not _has_group(nest, size) for nest in nests):
        return 1
    return size


def grouped(nest: Nest, size: int) -> Nest:
    """Return a nest in units of ``size`` elements, which `common_group` has found."""
    if size == 1:
        return nest
    loops = [Loop(loop.extent, loop.src // size, loop.dst // size) for loop in nest.loops if loop.dst != 1]
    return Nest(tuple(loops), nest.src // size, nest.dst // size)


def _has_group(nest: Nest, size: int) -> bool:
    """Return whether a nest has an innermost loop of ``size`` adjacent elements, whose multiples all other steps are."""
    others = [loop for loop in nest.loops if loop.dst != 1]
    places = [nest.src, nest.dst, *(step for loop in others for step in (loop.src, loop.dst))]
    return len(others) == len(nest.loops) - 1 and all(place % size == 0 for place in places)


def pieces(nest: Nest) -> list[Nest]:
    """Cut long innermost loops, so that a nest's outer loops have enough steps to share."""
    found = [nest]
    for unit, length in (("src", _columns(nest)), ("dst", PIECE)):
        found = [piece for part in found for piece in _cut(part, unit, length)]
    return found


def _columns(nest: Nest) -> int:
    """Return how many elements adjacent in src a piece has, or up to twice as many."""
    rows = next((loop.extent for loop in nest.loops if loop.dst == 1 and loop.src != 1), 0)
    columns = next((loop for loop in nest.loops if loop.src == 1 and loop.dst != 1), None)
    if not rows or columns is None:
        return PIECE
    if columns.dst % _COMPETING == 0:
        return LANES * max(1, _IN_TURN // rows)
    length = steps(nest.loops) // (_SHARES * rows)
    return min(PIECE, -(-length // LANES) * LANES) if length * rows >= _LEAST else PIECE


def _cut(nest: Nest, unit: str, length: int) -> list[Nest]:
    for number, loop in enumerate(nest.loops):
        if getattr(loop, unit) == 1 and loop.extent >= 2 * length:
            whole, rest = divmod(loop.extent, length)
            outer = Loop(whole, loop.src * length, loop.dst * length)
            before, after = nest.loops[:number], nest.loops[number + 1 :]
            cut = [nest._replace(loops=(*before, outer, loop._replace(extent=length), *after))]
            if rest:
                start = whole * length
                loops = (*before, loop._replace(extent=rest), *after)
                cut.append(Nest(loops, nest.src + start * loop.src, nest.dst + start * loop.dst, nest.pads))
            return cut
    return [nest]


def _elements(src: MemoryDesc, dst: MemoryDesc, dim: int) -> list[Nest]:
    """Return nests that cover the copied indices of one dimension."""
    length = _covered(src, dst, dim)
    if dim != _adjacent(src, dst):
        return _range(src, dst, dim, 0, length)
    whole = length // 16 * 16
    rest = Nest(
        (Loop(length - whole, _stride(src, dim, 1), 1),), _place(src, dim, whole), _place(dst, dim, whole), True
    )
    return [*_range(src, dst, dim, 0, whole), rest]


def _range(src: MemoryDesc, dst: MemoryDesc, dim: int, start: int, end: int) -> list[Nest]:
    """Return nests that cover the indices from ``start`` to ``end`` of one dimension. Raises IncompatibleBlocks."""
    marks = sorted({1, *_marks(src, dim), *_marks(dst, dim)})
    if any(b % a for a, b in itertools.pairwise(marks)):
        raise IncompatibleBlocks(f"blocks {marks[1:]} of dimension {dim} do not divide one another")
    found = []
    while start < end:
        # The largest blocks that begin here and fit, as many as there are before a still larger one begins.
        number = max(i for i, mark in enumerate(marks) if start % mark == 0 and (start + mark <= end or mark == 1))
        unit = marks[number]
        stop = end
        if number + 1 < len(marks):
            stop = min(end, (start // marks[number + 1] + 1) * marks[number + 1])
        count = (stop - start) // unit
        inner = [
            Loop(b // a, _stride(src, dim, a), _stride(dst, dim, a)) for a, b in itertools.pairwise(marks[: number + 1])
        ]
        outer = Loop(count, _stride(src, dim, unit), _stride(dst, dim, unit))
        found.append(Nest((*inner, outer), _place(src, dim, start), _place(dst, dim, start)))
        start += count * unit
    return found


def _combined(parts: list[list[Nest]]) -> list[Nest]:
    """Return every combination of one nest a dimension as one nest."""
    nests = []
    for choice in itertools.product(*parts):
        loops = sorted((loop for nest in choice for loop in nest.loops), key=lambda loop: (-loop.dst, -loop.src))
        pads = any(n.pads for n in choice)
        nests.append(Nest(_merge(loops), sum(n.src for n in choice), sum(n.dst for n in choice), pads))
    return nests


def _covered(src: MemoryDesc, dst: MemoryDesc, dim: int) -> int:
    """Return how many indices of a dimension are copied: its padding too if both layouts pad alike."""
    return dst.padded_dims[dim] if _keeps_padding(src, dst, dim) else dst.dims[dim]


def _keeps_padding(src: MemoryDesc, dst: MemoryDesc, dim: int) -> bool:
    return src.layout.block_of(dim) == dst.layout.block_of(dim)


def _marks(md: MemoryDesc, dim: int) -> list[int]:
    """Return the sizes at which a layout cuts a dimension: products of its blocks, innermost first."""
    sizes = [size for d, size in reversed(md.layout.blocks) if d == dim]
    return list(itertools.accumulate(sizes, lambda a, b: a * b))


def _strides(md: MemoryDesc, dim: int) -> list[tuple[int, int]]:
    """Return (size, stride) of each inner block of a dimension, innermost first, and (0, stride) of the outer index."""
    found = []
    step = 1
    for d, size in reversed(md.layout.blocks):
        if d == dim:
            found.append((size, step))
        step *= size
    return [*found, (0, md.outer_strides()[dim])]


def _stride(md: MemoryDesc, dim: int, unit: int) -> int:
    """Return the distance in memory of two elements ``unit`` indices apart, a size at which some layout cuts."""
    for size, stride in _strides(md, dim):
        if not size or unit < size:
            return stride * unit
        unit //= size
    raise AssertionError("the outer index ends the loop")


def _place(md: MemoryDesc, dim: int, index: int) -> int:
    place = 0
    for size, stride in _strides(md, dim):
        place += (index % size if size else index) * stride
        index = index // size if size else 0
    return place


def _merge(loops: list[Loop]) -> tuple[Loop, ...]:
    """Drop loops of one step and join neighbours that are one loop in both layouts."""
    merged: list[Loop] = []
    for loop in loops:
        if loop.extent == 1:
            continue
        if merged and (merged[-1].src, merged[-1].dst) == (loop.extent * loop.src, loop.extent * loop.dst):
            merged[-1] = Loop(merged[-1].extent * loop.extent, loop.src, loop.dst)
        else:
            merged.append(loop)
    return tuple(merged)


def steps(loops: tuple[Loop, ...]) -> int:
    """Return how often the body of loops runs."""
    return math.prod(loop.extent for loop in loops)
