"""The steps of each tile of a convolution: those of taps that read nothing but padding are left out. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeAlias

from .convolution_tiles import Tiling
from .convolution_window import Window

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
    deep = window.depth
    sizes = (deep.size, window.height, window.width)
    kernels, strides = (deep.kernel, *window.kernel), (deep.stride, *window.stride)
    apart, pads = (deep.dilation, *window.dilation), (deep.pad, *window.pad)
    known: dict[tuple[int, int, int], tuple[int, ...]] = {}

    def along(axis: int, first: int, last: int) -> tuple[int, ...]:
        """Return the places in the window, along an axis, from which some position reads an element."""
        if (axis, first, last) not in known:
            begins = [position * strides[axis] - pads[axis] for position in range(first, last + 1)]
            places = (k for k in range(kernels[axis]) if any(0 <= at + k * apart[axis] < sizes[axis] for at in begins))
            known[axis, first, last] = tuple(places)
        return known[axis, first, last]

    def taps(tile: Corners) -> Taps:
        places = [along(axis, first, last) for axis, (first, last) in enumerate(zip(*tile, strict=True))]
        return tuple((d * kernels[1] + h) * kernels[2] + w for d, h, w in itertools.product(*places))

    return taps
