"""The node's tier: entries as files, shared by all processes of the user, readable without a connection.

    <home>/<namespace>/state                             the state that the node's processes share (see node_state)
    <home>/<namespace>/journal                           counts and uses for Redis (see journal)
    <home>/<namespace>/entries/<generation>/<digest>     one signed entry each
    <home>/<namespace>/run_id                            of Redis, when the entries were last compared (see tidy.lua)
    <home>/<namespace>/unpublished/<digest>              this entry still has to go to Redis, under this lease if any
    <home>/<namespace>/creating/<digest>                 the lease to create it (see file_lease)

Guarantees: a file appears complete or not at all, and never replaces another; the path contains the generation, so a
creator that was at work during a `clear` cannot bring a cleared entry back. The tier is the fallback and the durable
queue while Redis is away: an entry made then is marked, and the next process with a connection publishes it.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Iterator
from typing import Final

from .deferred_namedtuple import NamedTuple
from .entry_file import generation_name, mark_used, read_entry_file
from .file_lease import FileLeaseWait, remove_unheld
from .folders import open_file

#: Age, in seconds, at which a draft or a file lease without a holder counts as left by a crashed process.
_ABANDONED_S: Final = 3600.0
#: A full folder is emptied by one part in this many below its capacity.
_SPARE_SHARE: Final = 16
#: Between two looks at the folder, which others fill as well, a process fills at most one part in this many of the room
#: that was left, or puts this many entries where that is less. The fuller a folder, the longer a look takes.
_ROOM_SHARE: Final = 16
_LEAST_PUTS_BETWEEN_SWEEPS: Final = 32


class FileStatus(NamedTuple):
    """One entry's file: size in bytes, times in seconds since the epoch."""

    digest: str
    bytes: int
    last_use: float


class Mark(NamedTuple):
    """The mark of an entry that has to go to Redis: the lease it was made under, empty for none, and the mark's time.

    `time` is in nanoseconds of the kernel's clock, and good for comparing only.
    """

    lease: str
    time: int


class FilesTier:
    """Read, write and bound the entry files of one namespace.

    Every method raises OSError when the folder cannot be used; entries are opaque bytes here.
    """

    def __init__(self, folder: str, capacity_bytes: int) -> None:
        self._folder = folder
        self._entries = os.path.join(folder, "entries")
        self._unpublished = os.path.join(folder, "unpublished")
        self._creating = os.path.join(folder, "creating")
        self._run_id = os.path.join(folder, "run_id")
        self._capacity_bytes = capacity_bytes
        self._last_folder: tuple[int, str] = (-1, "")
        # Entries and bytes that the last sweep has left, and our own since; the next sweep sees those of others.
        self._swept: tuple[int, int] | None = None
        self._put_entries = 0
        self._put_bytes = 0

    def get(self, generation: int, digest: str, use: bool = True) -> bytes | None:
        """Return an entry's bytes, None if it is not here; `use` makes it the most recently used."""
        return read_entry_file(f"{self._folder_of(generation)}/{digest}", use)

    def put(self, generation: int, digest: str, blob: bytes, capacity: int, unpublished: bool = False) -> None:
        """Keep an entry unless there is one already, and drop the least recently used past `capacity` entries.

        `unpublished` marks it for Redis.
        """
        if len(blob) > self._capacity_bytes:
            return
        path = self._path(generation, digest)
        if os.access(path, os.F_OK):
            if unpublished:
                self.mark_unpublished(digest)
            return
        draft = f"{path}.{os.urandom(8).hex()}"
        self._write(draft, blob)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            os.unlink(draft)
        if unpublished:
            self.mark_unpublished(digest)
        self._put_entries += 1
        self._put_bytes += len(blob)
        if self._may_be_full(capacity):
            self.sweep(generation, capacity)

    def remove(self, generation: int, digest: str) -> bool:
        """Remove an entry; return whether it was there."""
        _unlink(os.path.join(self._unpublished, digest))
        return _unlink(self._path(generation, digest))

    def remove_if(self, generation: int, digest: str, blob: bytes) -> None:
        """Remove an entry if it still has these bytes; another process may have put a good one in its place."""
        if self.get(generation, digest) == blob:
            self.remove(generation, digest)

    def listing(self, generation: int) -> list[FileStatus]:
        """Return the entries of a generation, least recently used first."""
        found = []
        for item in _scan(os.path.join(self._entries, generation_name(generation))):
            status = _lstat(item)
            if status is not None and "." not in item.name and stat.S_ISREG(status.st_mode):
                found.append(FileStatus(item.name, status.st_size, status.st_mtime))
        found.sort(key=lambda status: status.last_use)
        return found

    def statuses(self, generation: int, digests: list[str]) -> list[FileStatus]:
        """Return those of some entries that are here, in the given order."""
        found = []
        for digest in digests:
            try:
                status = os.lstat(self._path(generation, digest))
            except FileNotFoundError:
                continue
            found.append(FileStatus(digest, status.st_size, status.st_mtime))
        return found

    def sweep(self, generation: int, capacity: int) -> None:
        """Drop entries past the capacities, older generations, and the files of crashed processes."""
        listing = self.listing(generation)
        entries, total = len(listing), sum(status.bytes for status in listing)
        if entries > capacity or total > self._capacity_bytes:
            # A little more than needed, so that a full folder is not read again for every new entry.
            entries_goal = capacity - capacity // _SPARE_SHARE
            bytes_goal = self._capacity_bytes - self._capacity_bytes // _SPARE_SHARE
        else:
            entries_goal, bytes_goal = entries, total
        for status in listing:
            if entries <= entries_goal and total <= bytes_goal:
                break
            self.remove(generation, status.digest)
            entries -= 1
            total -= status.bytes
        self._swept = entries, total
        self._put_entries = self._put_bytes = 0
        for item in _scan(self._entries):
            if len(item.name) == 16 and item.name < generation_name(generation) and item.is_dir(follow_symlinks=False):
                self._remove_generation(item.path)
        for folder in (os.path.join(self._entries, generation_name(generation)), self._creating):
            for item in _scan(folder):
                if folder == self._creating:
                    # The age alone would be wrong whenever the wall clock steps, or the folder is another machine's.
                    if _is_old(item):
                        remove_unheld(item.path)
                elif "." in item.name and _is_old(item):
                    _unlink(item.path)

    def unpublished(self) -> list[str]:
        """Return the digests of entries that have to go to Redis, least recently used first."""
        marks = [(status.st_mtime_ns, item.name) for item in _scan(self._unpublished) if (status := _lstat(item))]
        return [digest for _, digest in sorted(marks)]

    def mark_unpublished(self, digest: str, last_use: float | None = None, lease: str = "") -> None:
        """Remember that an entry has to go to Redis; `last_use` is in seconds since the epoch, None for now.

        `lease` names the lease that it was made under, for `mark_of`.
        """
        path = os.path.join(self._unpublished, digest)
        descriptor = open_file(path, os.O_WRONLY | os.O_CREAT)
        try:
            if lease:
                os.write(descriptor, lease.encode())
            if last_use is None:
                mark_used(descriptor)
            else:
                os.utime(descriptor, (last_use, last_use))
        finally:
            os.close(descriptor)

    def mark_of(self, digest: str) -> Mark | None:
        """Return the mark of an entry that has to go to Redis; None if it does not have to."""
        try:
            with open(os.path.join(self._unpublished, digest), encoding="ascii", errors="replace") as file:
                return Mark(file.read(), os.fstat(file.fileno()).st_ctime_ns)
        except FileNotFoundError:
            return None

    def mark_published(self, digest: str, mark: Mark) -> None:
        """Remove an entry's mark, unless it was marked again since `mark`."""
        path = os.path.join(self._unpublished, digest)
        try:
            if os.stat(path).st_ctime_ns == mark.time:
                os.unlink(path)
        except FileNotFoundError:
            # Another process has published it, too.
            return

    def run_id(self) -> str:
        """Return the run id of Redis that the entries here were last compared with; empty for none."""
        try:
            with open(self._run_id, encoding="ascii", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def set_run_id(self, run_id: str) -> None:
        """Note a run id of Redis. One that a crash has torn equals none that Redis ever has."""
        descriptor = open_file(self._run_id, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            os.write(descriptor, run_id.encode("ascii"))
        finally:
            os.close(descriptor)

    def file_lease(self, digest: str, stale_after: float, busy_for: float = math.inf) -> FileLeaseWait:
        """Return the wait for this node's lease to create an entry."""
        return FileLeaseWait(os.path.join(self._creating, digest), stale_after, busy_for)

    def _may_be_full(self, capacity: int) -> bool:
        """Return whether the folder has grown past its capacities, as far as we know, or enough to look again."""
        if self._swept is None:
            return True
        entries, total = self._swept
        for put, room, mean in (
            (self._put_entries, capacity - entries, 1),
            (self._put_bytes, self._capacity_bytes - total, total // max(entries, 1)),
        ):
            if put > room or put > max(_LEAST_PUTS_BETWEEN_SWEEPS * mean, room // _ROOM_SHARE):
                return True
        return False

    def _path(self, generation: int, digest: str) -> str:
        return f"{self._folder_of(generation)}/{digest}"

    def _folder_of(self, generation: int) -> str:
        last = self._last_folder
        if last[0] != generation:
            last = self._last_folder = generation, os.path.join(self._entries, generation_name(generation))
        return last[1]

    def _write(self, path: str, blob: bytes) -> None:
        descriptor = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            rest = memoryview(blob)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            mark_used(descriptor)
        except OSError:
            _unlink(path)
            raise
        finally:
            os.close(descriptor)

    def _remove_generation(self, folder: str) -> None:
        for item in _scan(folder):
            _unlink(item.path)
            _unlink(os.path.join(self._unpublished, item.name))
        try:
            os.rmdir(folder)
        except OSError:
            # A late creator has just put an entry there; the next sweep gets it.
            return


def _scan(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as items:
            yield from list(items)
    except FileNotFoundError:
        return


def _lstat(item: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_old(item: os.DirEntry[str]) -> bool:
    """Return whether a file is as old as what crashed processes have left."""
    status = _lstat(item)
    return status is not None and time.time() - status.st_mtime > _ABANDONED_S


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True
