"""How the memory of an activation divides into pieces that native kernels work on, and which layouts they take.

Native kernels of operations that do not mix channels take a row-major (or otherwise permuted) layout as it is, and the
layout with blocks of 16 channels. Where the last channel block is only partly filled, its other lanes hold zeros and
must be written as zeros, so a kernel takes the number of lanes that count (``tail``) and the place of the last block.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ...desc import MemoryDesc

LANES: Final = 16
#: Elements that one work item covers: 16 KiB, so that threads share work evenly and never share a cache line.
CHUNK: Final = 4096
#: Data types of kernels that compute in float32 or in float64 alike.
EVERY_TYPE: Final = (
    "f32", "f64", "f16", "bf16", "s64", "s32", "s8", "u8", "bool", "u64", "u32", "s16", "u16",
)  # fmt: skip


def lane_size(dtype: str) -> int:
    """Return the bytes of a number that kernels compute with for a data type."""
    return 4 if dtype in ("f32", "f16", "bf16") else 8


def blocked_tag(ndims: int) -> str:
    """Return the tag with blocks of 16 channels of a rank: ``aBcd16b`` for 4."""
    return f"aB{'cdefghijkl'[: ndims - 2]}16b"


def is_blocked(md: MemoryDesc) -> bool:
    """Return whether 16 channels are adjacent, the other dimensions in order."""
    return md.ndims >= 2 and md.tag == blocked_tag(md.ndims)


def refuse(*mds: MemoryDesc, dtypes: tuple[str, ...] = ("f32",)) -> str | None:
    """Return why native kernels cannot take these memories, or None: any permutation or blocks of 16 channels, of one type."""
    for md in mds:
        if md.dtype not in dtypes:
            return f"data type {md.dtype}; only {', '.join(dtypes)} {'is' if len(dtypes) == 1 else 'are'} supported"
        if md.dtype != mds[0].dtype:
            return f"data types differ: {mds[0].dtype} and {md.dtype}"
        if md.layout.blocks and not is_blocked(md):
            return f"layout {md.tag}; only blocks of 16 channels are supported"
    return None


def refuse_permuted(*mds: MemoryDesc, dtypes: tuple[str, ...] = ("f32",)) -> str | None:
    """Return why a kernel over spatial dimensions cannot take these memories: row-major or blocked only."""
    for md in mds:
        if not (md.is_plain or is_blocked(md)):
            return f"layout {md.tag}; only row-major and blocks of 16 channels are supported"
    return refuse(*mds, dtypes=dtypes)


def refuse_different(*mds: MemoryDesc) -> str | None:
    """Return that layouts differ, or None if all are the same."""
    tags = dict.fromkeys(md.tag for md in mds)
    return None if len(tags) == 1 else f"layouts differ: {', '.join(tags)}"


def refuse_but_row_major_floats(src: MemoryDesc, dst: MemoryDesc) -> str | None:
    """Return why src and dst are not row-major of one type, f32 or f64, or None if they are."""
    if src.dtype not in ("f32", "f64") or dst.dtype != src.dtype:
        return f"{src.dtype} to {dst.dtype}; only f32 and f64 are supported"
    return None if src.is_plain and dst.is_plain else f"layouts {src} and {dst}; only row-major is supported"


def channel_blocks(md: MemoryDesc) -> int:
    """Return the number of channel blocks of a blocked memory."""
    return md.padded_dims[1] // LANES


def channel_tail(md: MemoryDesc) -> int:
    """Return how many lanes of the last channel block hold channels, 1 to 16."""
    return (md.dims[1] - 1) % LANES + 1


class Span(NamedTuple):
    """A tensor as ``blocks`` runs of ``length`` elements each.

    Every ``period``-th run (the last of each period) holds only ``tail`` lanes of 16; a run is otherwise full.
    """

    blocks: int
    length: int
    period: int
    tail: int

    @property
    def work(self) -> int:
        """The number of pieces of at most `CHUNK` elements."""
        return self.blocks * -(-self.length // CHUNK)

    def arguments(self) -> tuple[tuple[str, int], ...]:
        """Return (length, chunk, period, tail) as launch arguments."""
        return (("i", self.length), ("i", CHUNK), ("i", self.period), ("i", self.tail))


def span(md: MemoryDesc) -> Span:
    """Return the runs of a memory: one for all of it, or one for each channel block if the last is partly filled."""
    if is_blocked(md) and md.dims[1] % LANES:
        count = channel_blocks(md)
        return Span(md.dims[0] * count, math.prod(md.dims[2:]) * LANES, count, channel_tail(md))
    return Span(1, math.prod(md.padded_dims), 1, LANES)
