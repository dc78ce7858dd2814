"""The steps of each tile of a convolution: those of taps that read nothing but padding are left out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TypeAlias

from .convolution_tiles import Tiling
from .convolution_window import NO_SPARE, Spare, Window

#: A step of the batch-reduce kernel: offset in the source, inputs read there, bytes of weights to skip afterwards.
Step: TypeAlias = tuple[int, int, int]
#: The first and the last position of a tile: (slab, row, column) each.
Corners: TypeAlias = tuple[tuple[int, int, int], tuple[int, int, int]]
#: The numbers of the taps that a tile needs, or all.
Taps: TypeAlias = "tuple[int, ...] | None"


class Walks:
    """The tables of steps and of walks through them, which tiles share."""

    def __init__(self, steps: Sequence[Step], weight_row: int) -> None:
        """Take all steps, block by block of inputs, and the bytes of a row of weights."""
        self.steps: list[int] = []
        self.walks: list[int] = []
        self._all = tuple(steps)
        self._row = weight_row
        self._known: dict[Taps, int] = {}

    def place(self, taps: Taps, number: int) -> int:
        """Return the offset in the table of walks of the steps with these of ``number`` taps."""
        if taps is not None and len(taps) in (0, number):
            # A tile has a step at least.
            taps = None
        if taps not in self._known:
            self._known[taps] = self._add(taps, number)
        return self._known[taps]

    def _add(self, taps: Taps, number: int) -> int:
        place = len(self.walks) * 8
        begin, first, taken = len(self.steps) * 8, 0, 0
        for at, (offset, lanes, skip) in enumerate(self._all):
            if taps is None or at % number in taps:
                self.steps += [offset, lanes, skip]
                taken += 1
            elif taken:
                self.steps[-1] += lanes * self._row + skip
            else:
                first += lanes * self._row + skip
        self.walks += [begin, taken, first]
        return place


def corners(tiles: Tiling, slab: int, kind: int, row: int, column: int) -> Corners:
    """Return the first and the last position of a tile."""
    runs = tiles.kinds[kind]
    return (slab, row, column), (slab, row + len(runs) - 1, column + runs[0] - 1)


def taps_of(window: Window) -> Callable[[Corners], Taps]:
    """Return the function of a tile that returns which taps read an element of the source, not padding, for a position of it."""
    kernel = window.kernel
    along = cache(partial(needed, window))

    @cache
    def number(depths: tuple[int, ...], rows: tuple[int, ...], columns: tuple[int, ...]) -> Taps:
        return tuple([(d * kernel[0] + h) * kernel[1] + w for d in depths for h in rows for w in columns])

    # Tiles are many and of few kinds: those at the edges read fewer taps.
    def taps(tile: Corners) -> Taps:
        (slab, row, column), (last_slab, last_row, last_column) = tile
        return number(along(0, slab, last_slab), along(1, row, last_row), along(2, column, last_column))

    return taps


def needed(window: Window, axis: int, first: int, last: int) -> tuple[int, ...]:
    """Return the places in the window, along an axis, from which some position of ``first`` to ``last`` reads an element."""
    deep = window.depth
    size, kernel = (deep.size, window.height, window.width)[axis], (deep.kernel, *window.kernel)[axis]
    stride, apart = (deep.stride, *window.stride)[axis], (deep.dilation, *window.dilation)[axis]
    pad = (deep.pad, *window.pad)[axis]
    begins = range(first * stride - pad, last * stride - pad + 1, stride)
    return tuple(k for k in range(kernel) if any(0 <= at + k * apart < size for at in begins))


def spare_of(window: Window, tiles: Tiling) -> Spare:
    """Return the rows and columns at the edges of the padded copy that no tile reads, because it leaves taps out.

    A kernel that is dilated as far as DeepLab's has mostly padding in a copy with all of it: of an image of 32 x 32 positions
    and a dilation of 24, 80 x 80 positions.
    """
    if window.is_pointwise or window.stride[1] > 1:
        return NO_SPARE
    if not all(needed(window, 0, slab, slab) for slab in range(window.depth.out)):
        return NO_SPARE
    kinds = tiles.kinds
    rows = {(row, row + len(kinds[kind]) - 1) for kind, row, _ in tiles.places}
    columns = {(column, column + kinds[kind][0] - 1) for kind, _, column in tiles.places}
    spare = []
    for axis, spans in enumerate((rows, columns)):
        places = [(first, last, needed(window, axis + 1, first, last)) for first, last in spans]
        if not all(taps for _, _, taps in places):
            # Such a tile has all taps, see `Walks.place`.
            return NO_SPARE
        stride, apart, pad = window.stride[axis], window.dilation[axis], window.pad[axis]
        before = min(first * stride + taps[0] * apart for first, _, taps in places)
        end = max(last * stride + taps[-1] * apart for _, last, taps in places)
        spare.append((min(before, pad), (window.out[axis] - 1) * stride + window.reach[axis] - end))
    return spare[0], spare[1]
