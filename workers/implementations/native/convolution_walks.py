"""The steps of each tile of a convolution: those of taps that read nothing but padding are left out. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Final, TypeAlias

from .convolution_tiles import Tiling, even, tile_most
from .convolution_window import NO_SPARE, Spare, Trim, Window

#: Parts of a row in which other taps are needed, at most, for tiles that end with them.
_PARTS: Final = 8
#: What a turn of a tile's loop takes beside its positions, in positions; and the share of the time that is worth other kernels.
_TURN: Final = 1.5
_GAIN: Final = 0.95
#: The share of taps that read the source from which on tiles that leave out the others take less time than chunks of inputs.
_READ: Final = 0.85
#: ISA levels whose tiles leave out positions, and how many of them at most.
_TRIMMED: Final = ("x86-64-v4",)
_MARGIN: Final = 2
#: A step of the batch-reduce kernel: offset in the source, inputs read there, bytes of weights to skip afterwards.
Step: TypeAlias = tuple[int, int, int]
#: The first and the last position of a tile: (slab, row, column) each.
Corners: TypeAlias = tuple[tuple[int, int, int], tuple[int, int, int]]
#: The numbers of the taps that a tile needs, or all.
Taps: TypeAlias = "tuple[int, ...] | None"


class Walks:
    """The tables of steps and of walks through them, which tiles share."""

    def __init__(self, steps: Sequence[Step], weight_row: int, trimmed: bool = False) -> None:
        """Take all steps, block by block of inputs, the bytes of a row of weights, and whether steps say how they are trimmed."""
        self.steps: list[int] = []
        self.walks: list[int] = []
        self._all = tuple(steps)
        self._row = weight_row
        self._trimmed = trimmed
        self._known: dict[tuple[Taps, tuple[int, ...]], int] = {}

    def place(self, taps: Taps, number: int, trims: tuple[int, ...] = ()) -> int:
        """Return the offset in the table of walks of the steps with these of ``number`` taps, and each one's trim."""
        if taps is not None and len(taps) in (0, number):
            # A tile has a step at least.
            taps = None
        if (taps, trims) not in self._known:
            self._known[taps, trims] = self._add(taps, number, trims)
        return self._known[taps, trims]

    def _add(self, taps: Taps, number: int, trims: tuple[int, ...]) -> int:
        place = len(self.walks) * 8
        begin, first, taken = len(self.steps) * 8, 0, 0
        for at, (offset, lanes, skip) in enumerate(self._all):
            if taps is None or at % number in taps:
                self.steps += [offset, lanes, skip]
                if self._trimmed:
                    self.steps.append(trims[at % number])
                taken += 1
            elif taken:
                self.steps[-2 if self._trimmed else -1] += lanes * self._row + skip
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


def reads_much_padding(window: Window) -> bool:
    """Return whether a kernel is dilated so far that many of its taps read nothing but padding, for whole rows or tiles."""
    deep = window.depth
    if max(deep.dilation, *window.dilation) == 1:
        return False
    share = 1.0
    for axis, (size, kernel) in enumerate(zip((deep.out, *window.out), (deep.kernel, *window.kernel), strict=True)):
        share *= sum(len(needed(window, axis, at, at)) for at in range(size)) / (size * kernel)
    return share < _READ


def trims_of(window: Window, tiles: Tiling, isa: str) -> tuple[Trim, ...]:
    """Return how tiles are trimmed that read the source where it is, or nothing if they need a padded copy.

    A copy takes a twentieth of the time of a convolution of few channels. A tile of several rows would leave out positions in
    each of them.
    """
    if isa not in _TRIMMED or window.is_pointwise or window.is_direct or window.stride[1] != 1:
        return ()
    if max(window.pad) > _MARGIN or any(len(runs) > 1 for runs in tiles.kinds):
        return ()
    deep, (rows, _) = window.depth, window.out
    if not all(needed(window, axis, at, at) for axis, end in ((0, deep.out), (1, rows)) for at in range(end)):
        return ()
    found = [_trims(window, first, last) for first, last in _spans(tiles)]
    trims = {trim for each in found for trim in each if trim}
    if not all(map(any, found)) or any(sum(trim) > _MARGIN for trim in trims):
        return ()
    return ((0, 0), *sorted(trims - {(0, 0)}))


def trims_at(window: Window) -> Callable[[Corners], tuple[int, ...]]:
    """Return the function of a tile that returns the number of each tap's trim; of a tap that reads nothing, any."""

    @cache
    def numbers(first: int, last: int) -> tuple[int, ...]:
        found = [window.trims.index(trim) if trim else 0 for trim in _trims(window, first, last)]
        return tuple(found * (window.depth.kernel * window.kernel[0]))

    return lambda tile: numbers(tile[0][2], tile[1][2])


def _spans(tiles: Tiling) -> set[tuple[int, int]]:
    """Return the first and the last column of tiles of one run."""
    return {(column, column + tiles.kinds[kind][0] - 1) for kind, _, column in tiles.places}


def _trims(window: Window, first: int, last: int) -> list[Trim | None]:
    """Return for each tap of a row how many positions of a tile of these columns read padding before it and behind it."""
    found: list[Trim | None] = []
    for k in range(window.kernel[1]):
        shift = k * window.dilation[1] - window.pad[1]
        trim = max(0, -(first + shift)), max(0, last + shift - window.width + 1)
        found.append(trim if sum(trim) <= last - first else None)
    return found


def line_of(window: Window, isa: str) -> tuple[int, ...]:
    """Return the sizes of the tiles of a row, or nothing if it is best cut evenly.

    A tile has the taps that any of its positions needs. Those of a kernel that is dilated far differ along a row, so its tiles
    end where they change.
    """
    width, most = window.out[1], tile_most(isa)
    if window.dilation[1] == 1 or window.kernel[1] == 1 or width <= most // 2:
        return ()
    marks = _marks(window)
    if len(marks) > _PARTS + 1:
        return ()
    parts = [(end - first, len(needed(window, 2, first, first))) for first, end in itertools.pairwise(marks)]
    whole = even(width, most)
    limit = _GAIN * window.kernel[1] * (width + _TURN * len(whole))
    if sum(count * length for length, count in parts) * (1 + _TURN / most) >= limit:
        return ()
    ends = itertools.accumulate(whole)
    limit = _GAIN * sum(
        (size + _TURN) * len(needed(window, 2, end - size, end - 1)) for size, end in zip(whole, ends, strict=True)
    )
    found: tuple[int, ...] = ()
    for large, small in itertools.combinations_with_replacement(range(most, 0, -1), 2):
        cuts = [_cut(length, large, small) for length, _ in parts]
        if not all(cuts):
            continue
        time = sum(count * (sum(cut) + _TURN * len(cut)) for (_, count), cut in zip(parts, cuts, strict=True))
        if time < limit:
            limit, found = time, tuple(itertools.chain(*cuts))
    return found


def _marks(window: Window) -> list[int]:
    """Return the first column, those from which other taps of a row are needed, and the end."""
    stride, apart, pad, width = window.stride[1], window.dilation[1], window.pad[1], window.out[1]
    changes = {-(-(edge + pad - k * apart) // stride) for k in range(window.kernel[1]) for edge in (0, window.width)}
    return [0, *sorted(change for change in changes if 0 < change < width), width]


def _cut(length: int, large: int, small: int) -> tuple[int, ...]:
    """Return the fewest pieces of two sizes that make a length, or nothing."""
    most = length // large
    for count in range(most, max(-1, most - small), -1):
        others, rest = divmod(length - count * large, small)
        if rest == 0:
            return (large,) * count + (small,) * others
    return ()


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
