"""Cut a convolution into tiles of neighbouring outputs, strips of tiles, and chunks of inputs. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass

from .convolution_tiles import even, tile_sizes

#: ISA levels whose tiles have one block of outputs. With more registers, tiles have more blocks: see `conv`.
_LEVELS: Final = ("x86-64-v3",)
#: Positions of a tile of a block and half of the next one.
_WIDE: Final = 4
#: Least outputs of an image: tiles of fewer are better with several blocks of outputs.
_LEAST: Final = 3
#: Inputs of a chunk, at most, if a step has no more: their weights for 16 outputs take 18 KiB of 32.
_INPUTS: Final = 288
#: Bytes of a chunk's source that a strip may have, to be read again from the second-level cache.
_SOURCE: Final = 256 << 10
#: Bytes of weights, or of sums, that stay in the second-level cache.
_KEPT: Final = 256 << 10
#: Work is cut into so many items if it can be, which threads share evenly, also if another program holds one of them up.
_ITEMS: Final = 8
#: An odd number of items below this one is made even.
_MANY: Final = 4 * _ITEMS
#: Least tiles of a strip that is cut for threads: each strip reads the weights again.
_STRIP_TILES: Final = 2


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is cut: images, outputs of one image, groups, output blocks of a group.

    ``src_bytes`` are those of a group's source in one image, ``weight_bytes`` those of a group's weights.
    """

    images: int
    outputs: int
    groups: int
    blocks: int
    src_bytes: int
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class Cut:
    """``positions`` of large tiles, ``large`` ones of all ``tiles`` of an image; first tile of each strip of all images.

    ``span`` is how many items, (strip, output block) pairs of which the block changes first, are computed chunk by chunk.
    """

    positions: int
    large: int
    tiles: int
    strips: tuple[int, ...]
    span: int


def takes_chunks(isa: str, outputs: int) -> bool:
    """Return whether convolutions with so many outputs of an image are computed in chunks of inputs."""
    return isa in _LEVELS and outputs >= _LEAST


def chunks(lanes: Sequence[int], whole: bool) -> tuple[int, ...]:
    """Return the first step of each chunk, and the end; steps have so many ``lanes``. There is one chunk if ``whole``."""
    inputs = sum(lanes)
    count = 1 if whole else max(1, min(len(lanes), math.ceil(inputs / _INPUTS)))
    sums = (0, *itertools.accumulate(lanes))
    starts = [next(i for i, done in enumerate(sums) if done * count >= inputs * number) for number in range(count)]
    return (*sorted(set(starts)), len(lanes))


def ends_with_half(groups: int, channels: int) -> bool:
    """Return whether the last blocks of a group's output channels are a block and at most half of one, which wide tiles have."""
    return groups == 1 and channels > 16 and 0 < channels % 16 <= 8


def cut(isa: str, sizes: Sizes, chunk_count: int, wide: bool = False) -> Cut:
    """Return the tiles, or ``wide`` tiles, and strips of a convolution whose inputs are cut into so many chunks."""
    tile = even(sizes.outputs, _WIDE) if wide else tile_sizes(isa, sizes.outputs)
    positions = tile[0] + (len(tile) == 1 and tile[0] % 2)
    large = tile.count(positions)
    tiles = len(tile) * sizes.images
    count = 1
    if sizes.blocks > 1:
        count = min(math.ceil(sizes.images * sizes.src_bytes / chunk_count / _SOURCE), tiles)
    columns, most = sizes.groups * sizes.blocks, tiles // _STRIP_TILES
    if sizes.weight_bytes <= 2 * _KEPT:
        count = max(count, min(-(-_ITEMS // columns), most))
        # Two threads would compute five and four of nine items.
        count += count * columns % 2 if count * columns < _MANY and count < most else 0
    count = max(1, count)
    # Chunks of all strips write and read the sums again; strips with all of their chunks read the weights again.
    sums = 2 * (chunk_count - 1) * sizes.images * sizes.outputs * sizes.blocks * 64
    weights = (count - 1) * sizes.weight_bytes if sizes.weight_bytes > _KEPT else 0
    strips = tuple(tiles * i // count for i in range(count + 1))
    span = sizes.blocks if weights < sums else sizes.blocks * count * sizes.groups
    return Cut(positions, large, len(tile), strips, span)
