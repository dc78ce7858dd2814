"""Parallel regions in the native queue's form: packed once, submitted at every run of a plan."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, overload

from poolrt.cachestore.kept_property import kept_property

from ..kernels.native.trial_words import IS_ALONE, NEXT, TRIALS
from .interface import KERNEL_TYPE, Region
from .kernel_call import bind_call

#: Words of one region's record.
_WORDS = 5
#: Regions that a thread submits at once to a native pool, at most. Each such share has a record of trials
#: (`kernels/native/trials.py`).
SHARE: Final = 256
#: A time of a next trial that never comes.
_NEVER: Final = 1 << 62
#: Regions that a thread calls at 1 us each, in place of 5 us for submitting any number of them.
FEW: Final = 4


class PackedRegions(Sequence[Region]):
    """Regions with at least one task each, in order. Limitation: an object can be under way only once at a time."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self._regions = tuple(region for region in regions if region.blobs)
        #: The number of the region behind the last one that is in a native queue's ring.
        self.last = 0
        count = self.size = len(self._regions)
        self._blobs = [(ctypes.c_int64 * len(region.blobs))(*region.blobs) for region in self._regions]
        self._failed = (ctypes.c_int64 * count)()
        #: Whether these are a few regions of one task each, which are called in less time than a queue takes for them.
        self.is_serial = count <= FEW and all(len(blobs) == 1 for blobs in self._blobs)
        #: Where a kernel that is called writes its status, and the address of an error behind it.
        self._room = (ctypes.c_int64 * 8)()
        self.status = ctypes.addressof(self._room)
        #: The nanoseconds of each region's tasks, and the ticks of those under way: kept from run to run.
        self._times = (ctypes.c_int64 * (2 * count))()
        start, times = ctypes.addressof(self._failed), ctypes.addressof(self._times)
        self._records = (ctypes.c_int64 * (_WORDS * count))()
        self._records_at = ctypes.addressof(self._records)
        for i, (region, blobs) in enumerate(zip(self._regions, self._blobs, strict=True)):
            record: list[ctypes.c_int64 | int] = [
                region.function,
                ctypes.addressof(blobs),
                len(region.blobs),
                start + 8 * i,
                times + 16 * i if region.nanoseconds >= 0 else 0,
            ]
            self._times[2 * i] = region.nanoseconds
            self._records[_WORDS * i : _WORDS * (i + 1)] = record
        self._trials = (ctypes.c_int64 * (TRIALS // 8 * -(-count // SHARE)))()
        # None if the time of a task is unknown: tasks of users may wait for one another.
        is_known = all(region.nanoseconds >= 0 for region in self._regions)
        self._trials_at = ctypes.addressof(self._trials) if is_known else 0
        if all(len(blobs) == 1 for blobs in self._blobs):
            for at in range(0, len(self._trials), TRIALS // 8):
                self._trials[at + IS_ALONE // 8], self._trials[at + NEXT // 8] = 1, _NEVER

    @kept_property
    def calls(self) -> list[tuple[Region, Callable[[int, int, int], int]]]:
        """Each region with its kernel as a callable, kept because making one takes longer than calling it."""
        return [(region, KERNEL_TYPE(region.function)) for region in self._regions]

    @kept_property
    def tasks(self) -> list[tuple[Callable[[], int], Region]]:
        """Each task in order: what calls its kernel and returns 0, or else `failure` has the error; and its region."""
        return [
            (bind_call(region.function, self.status, blob), region) for region in self._regions for blob in region.blobs
        ]

    def run(self, number: int) -> None:
        """Run all tasks of a region on the calling thread, also after one that fails."""
        region, kernel = self.calls[number]
        for blob in region.blobs:
            if kernel(self.status, self.status + 32, blob):
                self._failed[number] = self._take_error() or 1

    def run_all(self) -> None:
        """Run all tasks in order on the calling thread. Raises the error of the first that fails; no later one runs then."""
        for call, region in self.tasks:
            if call():
                raise self.failure(region)

    def failure(self, region: Region) -> BaseException:
        """Return the error of a region whose task has returned an error status."""
        return region.failure(self._take_error())

    def _take_error(self) -> int:
        """Return the address of the error that a task wrote, 0 if it wrote none."""
        found = self._room[4]
        self._room[4] = 0
        return found

    def address_of(self, number: int) -> int:
        """Return the address of a region's record; the records of the next regions follow it."""
        return self._records_at + 8 * _WORDS * number

    def trials_of(self, number: int) -> int:
        """Return the address of the record of trials of the share that begins with a region, 0 if it has none."""
        if number % SHARE or not self._trials_at:
            return 0
        return self._trials_at + TRIALS * (number // SHARE)

    @property
    def has_failed(self) -> bool:
        """Whether a region failed since `take_failure` was called last."""
        return any(self._failed)

    def take_failure(self) -> BaseException | None:
        """Return the error of the first region that failed since the last call, if one did."""
        for i, region in enumerate(self._regions):
            if address := self._failed[i]:
                ctypes.memset(self._failed, 0, ctypes.sizeof(self._failed))
                return region.failure(address)
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
