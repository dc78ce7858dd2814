"""Files whose bytes are arrays: mapped, not read, and found again from the arrays that are parts of them."""

from __future__ import annotations

import mmap
import os
import time
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import numpy as np
from numpy.lib.array_utils import byte_bounds

from poolrt.cachestore.deferred_namedtuple import NamedTuple
from poolrt.cachestore.mapping import is_local
from poolrt.workers.memory.array_address import address_of
from poolrt.workers.memory.array_room import readable_in_place
from poolrt.workers.memory.buffer import SLACK

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PAGE: Final = mmap.PAGESIZE
#: Changes of a file that are further apart have different times: FAT counts in two seconds.
_RESOLUTION_NS: Final = 2_000_000_000
#: The same on file systems of this host that count in nanoseconds: ten times the longest tick of Linux's clock for them, 10 ms.
_FINE_RESOLUTION_NS: Final = 100_000_000
#: File systems that count coarser have times that are multiples of this: ext3's second, and the 10 ms of exFAT.
_COARSE_NS: Final = 10_000_000


class FileIdentity(NamedTuple):
    """What distinguishes a file with its content from others: the system changes ``changed_ns`` at every change of either."""

    device: int
    number: int
    size: int
    modified_ns: int
    changed_ns: int


class MappedFile(np.memmap):
    """All bytes of a file, read-only. Its `identity` is None for arrays that are parts of it."""

    identity: FileIdentity | None
    path: str
    is_local: bool

    def __new__(cls, file: BinaryIO, path: str | os.PathLike[str]) -> MappedFile:
        """Map an open file, which may be closed afterwards. Raises ValueError if it is empty, OSError if it cannot be mapped."""
        mapped = cast("MappedFile", super().__new__(cls, file, np.uint8, "r"))
        mapped.identity, mapped.path = _identity(os.fstat(file.fileno())), os.path.abspath(path)
        mapped.is_local = is_local(file.fileno())
        return mapped

    def __array_finalize__(self, made_of: Any) -> None:
        super().__array_finalize__(made_of)
        self.identity, self.path, self.is_local = None, "", False

    def part(self, start: int, nbytes: int) -> NDArray[np.uint8]:
        """Return bytes of the file as an array, which keeps the mapping."""
        return self.view(np.ndarray)[start : start + nbytes]

    def holds(self, array: NDArray[Any]) -> bool:
        """Return whether kernels can read a part of this file where it is."""
        if not (array.flags.c_contiguous and array.flags.aligned):
            return False
        behind = address_of(self) + self.nbytes - address_of(array) - array.nbytes
        return behind >= SLACK or readable_in_place(array)

    def is_settled(self) -> bool:
        """Return whether the path still names this file, unchanged, and its times show the next change.

        They do not if the last change is as recent as their resolution. No time shows what programs write to mappings of a
        file whose earlier writes are not on the disk yet.
        """
        try:
            found = _identity(os.stat(self.path))
        except OSError:
            return False
        return found == self.identity and time.time_ns() - found.changed_ns > resolution_ns(found, self.is_local)

    def place(self, array: NDArray[Any]) -> int:
        """Return at which byte of the file an array begins."""
        return address_of(array) - address_of(self)

    def leave(self, array: NDArray[Any]) -> None:
        """Give the pages that only hold a part of this file back to the system, which reads them again on the next use."""
        low, high = (bound - address_of(self) for bound in byte_bounds(array))
        first, last = -(-low // _PAGE) * _PAGE, high // _PAGE * _PAGE
        if last > first:
            content: mmap.mmap = self._mmap  # type: ignore[attr-defined]
            content.madvise(mmap.MADV_DONTNEED, first, last - first)


def resolution_ns(identity: FileIdentity, local: bool) -> int:
    """Return how far apart, in nanoseconds, two changes of a file may be that its times do not tell from each other."""
    return _FINE_RESOLUTION_NS if local and identity.changed_ns % _COARSE_NS else _RESOLUTION_NS


def _identity(status: os.stat_result) -> FileIdentity:
    times = status.st_mtime_ns, status.st_ctime_ns
    return FileIdentity(status.st_dev, status.st_ino, status.st_size, *times)


def file_of(array: NDArray[Any]) -> MappedFile | None:
    """Return the mapped file that an array is a part of, with its own bytes or others; None for any other array."""
    found: Any = array
    while found is not None:
        if isinstance(found, MappedFile) and found.identity is not None:
            return found
        found = found.obj if isinstance(found, memoryview) else getattr(found, "base", None)
    return None
