"""Cut the output of a convolution into register tiles, and tiles into strips whose source fits in the cache. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass

#: ISA level -> (vectors of 16 floats that its registers hold, of those the part that a broadcast value takes).
_REGISTERS: Final = {"x86-64-v4": (32.0, 1.0), "x86-64-v3": (8.0, 0.5), "x86-64-v2": (4.0, 0.25), "x86-64": (4.0, 0.25)}
#: ISA level -> positions of a large tile.
_POSITIONS: Final = {"x86-64-v4": 14, "x86-64-v3": 6, "x86-64-v2": 2, "x86-64": 2}
#: ISA level -> rows of the tiles that one kernel of products has: few kernels serve all numbers of rows.
_HEIGHTS: Final = {
    "x86-64-v4": ((14, 13, 12, 11), (10, 9, 8, 7), (6, 5, 4, 3), (2, 1)),
    "x86-64-v3": ((6, 5, 4, 3), (2, 1)),
    "x86-64-v2": ((2, 1),),
    "x86-64": ((2, 1),),
}
#: Most vectors of a tile of a product.
_VECTORS: Final = 8
#: Most runs of a tile: each takes a register for its address.
_RUNS: Final = 4
#: Bytes that a strip's source, or all weights, may take to be read again from the second-level cache.
_CACHE: Final = 512 << 10
#: Work is cut into so many items if it can be, which threads share evenly, also if another program holds one of them up.
_ITEMS: Final = 8
#: Least tiles of a strip that is cut for threads: each strip reads the weights again.
_STRIP_TILES: Final = 2
#: Products at least of a sum that is read and written again.
_SUMMED: Final = 128


@dataclass(frozen=True, slots=True)
class Tiling:
    """``kinds`` of tiles (runs of neighbours), output ``blocks`` at once, and (kind, row, column) of each tile."""

    kinds: tuple[tuple[int, ...], ...]
    blocks: int
    places: tuple[tuple[int, int, int], ...]


def tiling(isa: str, rows: int, columns: int, blocks: int, most: int = 0, line: Sequence[int] = ()) -> Tiling:
    """Return the tiles that cover ``rows`` x ``columns`` positions: two kinds at most, sized as evenly as can be.

    Tiles have at most ``most`` positions, or as many as fit in registers. A ``line`` has the sizes of the tiles of a row, if it
    is not cut evenly.
    """
    most = most or _POSITIONS[isa]
    runs = min(most // columns, _RUNS, rows)
    if line or runs < 2:
        sizes = list(line) or even(columns, most)
        # Kernels are shared: a lone size comes with its even or odd neighbour, as 14 with 13.
        large, less = max(sizes), min(sizes)
        if large == less:
            large = min(large + large % 2, most)
            less = large - 1
        kinds: tuple[tuple[int, ...], ...] = ((large,), (less,)) if large > 1 else ((1,),)
        columns_of = [(0 if size == large else 1, start) for size, start in zip(sizes, _starts(sizes), strict=True)]
        places = tuple((kind, row, column) for row in range(rows) for kind, column in columns_of)
    else:
        sizes = even(rows, runs)
        kinds = tuple((columns,) * count for count in sorted(set(sizes), reverse=True))
        places = tuple(
            (0 if size == sizes[0] else 1, start, 0) for size, start in zip(sizes, _starts(sizes), strict=True)
        )
    return Tiling(kinds, output_blocks(isa, sum(kinds[0]), blocks), places)


def strips(tiles: int, src_bytes: int, weight_bytes: int, passes: int, groups: int) -> tuple[int, ...]:
    """Return the first tile of each strip, and the end.

    All output blocks of a strip are computed before the next strip: its source stays in the cache, but the weights are
    read again for each strip. ``passes`` is how often the whole source would be read otherwise; ``groups`` of images have
    as many strips each.
    """
    count = 1
    if src_bytes > _CACHE:
        cut = min(math.ceil(src_bytes / (_CACHE // 2)), tiles)
        again = weight_bytes if weight_bytes > _CACHE else 0
        if cut * again < passes * src_bytes:
            count = cut
    if weight_bytes <= _CACHE:
        count = max(count, min(-(-_ITEMS // (groups * passes)), tiles // _STRIP_TILES))
    return tuple(tiles * i // count for i in range(count + 1))


def images_at_once(images: int, src_bytes: int, weight_bytes: int) -> int:
    """Return how many images are cut into strips together: all, if a small image would read weights that no cache keeps."""
    return images if src_bytes <= _CACHE < weight_bytes else 1


def inputs_at_once(blocks: int, taps: int, src_bytes: int, part_bytes: int) -> list[int]:
    """Return how many blocks of inputs each launch over a single strip sums: all of them, if there is one launch.

    Each tile reads the weights of the output blocks that are computed at once, ``part_bytes``, and each of these all of the
    source. If the second-level cache does not hold both, a launch sums the inputs that it does hold.
    """
    near = src_bytes + part_bytes
    if near <= 2 * _CACHE:
        return [blocks]
    return even(blocks, max(blocks * _CACHE // near, -(-_SUMMED // (16 * taps))))


def even(length: int, most: int) -> list[int]:
    """Cut a length into as few pieces as possible of at most ``most``, whose sizes differ by one at most."""
    base, extra = divmod(length, -(-length // most))
    return [base + 1] * extra + [base] * (-(-length // most) - extra)


def _starts(sizes: list[int]) -> list[int]:
    """Return where each piece begins."""
    return [0, *itertools.accumulate(sizes[:-1])]


def tile_most(isa: str) -> int:
    """Return the positions of the largest tile."""
    return _POSITIONS[isa]


def tile_sizes(isa: str, positions: int) -> list[int]:
    """Return the positions of tiles that cover so many: as few tiles as can be, the larger ones first."""
    return even(positions, _POSITIONS[isa])


def output_blocks(isa: str, positions: int, most: int) -> int:
    """Return the largest number of output blocks, up to ``most``, whose sums and weights fit in the registers."""
    vectors, broadcast = _REGISTERS[isa]
    fitting = [n for n in (8, 4, 2, 1) if n <= most and positions * n + n + broadcast <= vectors]
    return fitting[0] if fitting else 1


def product_blocks(isa: str, rows: int, vectors: int) -> tuple[int, int]:
    """Return the vectors of a product's tile of so many rows, and those of the tiles of the columns that are left.

    Parts are as even as can be: a tile of few vectors has too few sums to keep the multipliers busy. A kernel of two vectors
    computes a lone one as well as a kernel of its own would.
    """
    registers, broadcast = _REGISTERS[isa]
    most = max((n for n in range(1, _VECTORS + 1) if rows * n + n + broadcast <= registers), default=1)
    blocks = min(most, max(2, -(-vectors // -(-vectors // most))))
    return blocks, vectors % blocks or 1


def tile_positions(isa: str, rows: int) -> int:
    """Return the positions of a tile of a product with so many rows: 1, or an even number, so that few kernels do."""
    size = even(rows, _POSITIONS[isa])[0]
    return size if size == 1 else size + size % 2


def product_tiles(isa: str, rows: int, most: int = 0) -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """Return the heights of a kernel's tiles, and the rows of a product's first tiles, how many these are, and all tiles.

    The others have one row less, and are as few as heights of one kernel allow. Tiles have at most ``most`` rows, or as many as
    fit in registers.
    """
    for tiles in range(-(-rows // (most or _POSITIONS[isa])), rows + 1):
        less, extra = divmod(rows, tiles)
        for heights in _HEIGHTS[isa]:
            if less in heights and less + bool(extra) in heights:
                return heights, (less + bool(extra), extra or tiles, tiles)
    raise ValueError(f"{rows} rows; expect at least 1")


def row_tiles(isa: str, rows: int, most: int = 0) -> tuple[int, int, int]:
    """Return the rows of the first tiles of a product, how many these are, and all tiles: the others have one row less.

    Tiles have at most ``most`` rows, or as many as f32 may have.
    """
    sizes = even(rows, most or _POSITIONS[isa])
    large, less = sizes[0], sizes[-1]
    if large == less > 1 and large % 2:
        # Kernels are shared: a lone odd size comes with its even neighbour.
        return large + 1, 0, len(sizes)
    return large, sizes.count(large), len(sizes)
