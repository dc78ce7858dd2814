"""One creator on a node: a locked file per key, held while the entry is created, with Redis or without.

The lease in Redis orders the hosts; the file lease orders the processes of one host when Redis is away, or comes and
goes. A creator with a lease in Redis takes the file lease too, so a process that loses Redis half-way still finds it.

Guarantees: a killed holder frees the lease at once (the kernel drops the lock). A stopped or hanging holder loses it
when a waiting process has seen its heartbeat, the file's modification time, unchanged for `stale_after` seconds; the
heartbeat's age would be wrong whenever the wall clock steps, or the folder is another machine's. A signed failure
reaches every process that waited, and no later one. The file is removed at the end.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final

from .file_lock import is_same_file, lock_file, try_lock, unlock_file
from .folders import open_file

#: First and longest pause, in seconds, between two looks at a lease that another process holds.
_FIRST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.02
#: Longest failure, in bytes, that is read back.
_MAX_FAILURE: Final = 1 << 20


class FileLease:
    """The right of this process to create one entry on this node, until `end`.

    There is no beat after `last_beat`, on the monotonic clock: a holder that hangs is silent from then on.
    """

    def __init__(self, path: str, descriptor: int, last_beat: float) -> None:
        self._path = path
        self._descriptor = descriptor
        self._last_beat = last_beat
        self._lock = threading.Lock()

    def beat(self) -> bool:
        """Show that the holder is at work; return False once the lease is over."""
        with self._lock:
            if self._descriptor < 0 or time.monotonic() > self._last_beat:
                return False
            os.utime(self._descriptor)
            return True

    def fail(self, failure: bytes) -> None:
        """Leave a signed failure for the waiting processes."""
        with self._lock:
            if self._descriptor >= 0:
                os.pwrite(self._descriptor, failure, 0)

    def end(self) -> None:
        """End the lease; waiting processes go on at once."""
        with self._lock:
            if self._descriptor < 0:
                return
            if is_same_file(self._descriptor, self._path):
                os.unlink(self._path)
            unlock_file(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


def remove_unheld(path: str) -> None:
    """Remove the file of a lease unless a process holds it. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        # A process that has opened the file and waits for its lock finds that it has no name, and opens a new one.
        if try_lock(descriptor) and is_same_file(descriptor, path):
            os.unlink(path)
    finally:
        os.close(descriptor)


class FileLeaseWait:
    """Wait for the file lease of one key.

    A holder is silent after `stale_after` seconds without a beat, and our own beats end after `busy_for` seconds. After
    `take` has returned, `waited` means that another holder was at work meanwhile, `took_over` that it had fallen
    silent; `failure` holds its signed failure, if it left one.
    """

    def __init__(self, path: str, stale_after: float, busy_for: float) -> None:
        self._path = path
        self._stale_after = stale_after
        self._busy_for = busy_for
        # The last beat that we have seen, as inode and modification time, and when we first saw it.
        self._beat: tuple[int, int] | None = None
        self._beat_seen = 0.0
        self.waited = False
        self.took_over = False
        self.failure: bytes | None = None

    def look(self) -> None:
        """Note the holder's last beat, so that time spent waiting for it elsewhere counts too."""
        try:
            self._silence(os.stat(self._path))
        except OSError:
            # There is no holder, or no usable folder: `take` will see.
            return

    def take(self, deadline: float) -> FileLease | None:
        """Return the lease, or None when the former holder left a failure or the monotonic clock has passed `deadline`.

        Raises OSError when the folder cannot be used.
        """
        pause = _FIRST_PAUSE_S
        descriptor = self._open()
        saw_holder = False
        try:
            while True:
                if try_lock(descriptor):
                    if is_same_file(descriptor, self._path):
                        # A holder that ends removes the name: a holder that we waited for and that did not has died.
                        self.took_over |= saw_holder
                        os.ftruncate(descriptor, 0)
                        os.utime(descriptor)
                        lease = FileLease(self._path, descriptor, time.monotonic() + self._busy_for)
                        descriptor = -1
                        return lease
                    # A holder ended between our opening and locking; its failure is in our file, which has no name now.
                    self.waited = True
                    self.failure = os.pread(descriptor, _MAX_FAILURE, 0) or None
                    if self.failure is not None:
                        return None
                    descriptor, saw_holder = self._reopen(descriptor), False
                    continue
                self.waited = saw_holder = True
                if time.monotonic() >= deadline:
                    return None
                if self._silence(os.fstat(descriptor)) > self._stale_after:
                    self.took_over |= self._take_away(descriptor)
                    descriptor, saw_holder = self._reopen(descriptor), False
                    continue
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _silence(self, status: os.stat_result) -> float:
        """Return the seconds since we saw a new beat."""
        beat = (status.st_ino, status.st_mtime_ns)
        now = time.monotonic()
        if beat != self._beat:
            self._beat, self._beat_seen = beat, now
        return now - self._beat_seen

    def _take_away(self, descriptor: int) -> bool:
        """Remove the name of a silent holder's file, so that the next process to open it makes a new one."""
        folder = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # One at a time: by the time of its removal the name could be that of the next holder's file.
            lock_file(folder, self._path)
            if not is_same_file(descriptor, self._path):
                return False
            os.unlink(self._path)
        except FileNotFoundError:
            return False
        finally:
            os.close(folder)
        return True

    def _reopen(self, descriptor: int) -> int:
        new = self._open()
        os.close(descriptor)
        return new

    def _open(self) -> int:
        return open_file(self._path, os.O_RDWR | os.O_CREAT)
