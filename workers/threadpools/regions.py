"""Parallel regions as the native pool's queue takes them: packed once, submitted as often as a plan is run."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, overload

from .interface import KernelFailed, Region

#: Words of one region's record.
_WORDS = 4


class PackedRegions(Sequence[Region]):
    """Regions with at least one task each, in order. One such object can be under way only once at a time."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self._regions = tuple(region for region in regions if region.blobs)
        count = len(self._regions)
        self._blobs = [(ctypes.c_int64 * len(region.blobs))(*region.blobs) for region in self._regions]
        self._failed = (ctypes.c_int64 * count)()
        start = ctypes.addressof(self._failed)
        self._records = (ctypes.c_int64 * (_WORDS * count))()
        for i, (region, blobs) in enumerate(zip(self._regions, self._blobs, strict=True)):
            record: list[ctypes.c_int64 | int] = [
                region.function,
                ctypes.addressof(blobs),
                len(region.blobs),
                start + 8 * i,
            ]
            self._records[_WORDS * i : _WORDS * (i + 1)] = record

    @property
    def address(self) -> int:
        """The address of the records."""
        return ctypes.addressof(self._records)

    def take_failure(self) -> BaseException | None:
        """Return the error of the first region that has failed since the last call, if one has."""
        for i, region in enumerate(self._regions):
            if self._failed[i]:
                ctypes.memset(self._failed, 0, ctypes.sizeof(self._failed))
                error: BaseException | None = getattr(region.keep, "error", None)
                return error or KernelFailed(f"{region.name or 'a native kernel'} failed")
        return None

    @overload
    def __getitem__(self, index: int) -> Region: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Region]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._regions[index]

    def __len__(self) -> int:
        return len(self._regions)

    def __iter__(self) -> Iterator[Region]:
        return iter(self._regions)
