"""Which results kernels write past the caches, and for which they ask for rows of the source before they read them."""

from __future__ import annotations

from typing import Final

from ...desc import MemoryDesc, item_size
from ...engines.target import Target

#: Bytes of a result from which on its lines are not in a cache when it is written: processors with AVX2 and no AVX-512 have 8 to
#: 32 MiB of the last level for several cores.
_LARGE: Final = 8 << 20
#: Bytes of a result whose source is not in a second-level cache of AVX-512 processors, and of its rows, from which on kernels ask
#: ahead: for rows of 1 KiB this takes longer than waiting.
_ASKED: Final = 2 << 20
_ASKED_ROW: Final = 1 << 11
#: Bytes of rows that kernels keep on their stack until they write them.
_ROWS: Final = range(1 << 8, (1 << 14) + 1)


def streams(dst: MemoryDesc, target: Target) -> bool:
    """Return whether a result is written past the caches.

    Processors with AVX-512 have larger caches, in which the next step finds a part of it.
    """
    return target.isa == "x86-64-v3" and dst.nbytes >= _LARGE


def streams_rows(dst: MemoryDesc, length: int, target: Target) -> bool:
    """Return whether rows of ``length`` elements, one after the other in a result, are written past the caches."""
    return streams(dst, target) and length * item_size(dst.dtype) in _ROWS


def asks_ahead(dst: MemoryDesc, length: int, target: Target) -> bool:
    """Return whether kernels ask for a row of ``length`` elements of the source while they compute the one before it."""
    is_far = dst.nbytes >= _ASKED and length * item_size(dst.dtype) >= _ASKED_ROW
    return target.isa == "x86-64-v4" and is_far
