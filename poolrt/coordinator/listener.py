"""A listening socket at a path, which only this user can connect to, and which is removed with the listener.

A folder in which another user could exchange the socket is refused (see `poolrt.cachestore.ownership`).

Guarantees: a socket that a killed process has left behind is replaced. A socket with a listener, and any other kind of
file, stays as it is. Of two listeners that start at once, one is refused. A listener holds the folder's lock while it
checks and removes a path, which otherwise could become another listener's in between.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from poolrt.cachestore.errors import PathRefused
from poolrt.cachestore.ownership import check_folder

#: Longest wait, in seconds, for other listeners that start in the same folder.
_FOLDER_S: Final = 5.0
#: Connections that wait until they are accepted.
_BACKLOG: Final = 64


class Listener:
    """Listens at ``path``. Raises OSError if there is a listener already, or the path cannot be used."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            # The path is created with this mode; a umask would apply to all threads of the process.
            os.fchmod(self._socket.fileno(), 0o600)
            _check_folder(path)
            with _folder_locked(path):
                _remove_stale(path)
                self._socket.bind(path)
                self._socket.listen(_BACKLOG)
                self._made = os.lstat(path)
        except BaseException:
            self._socket.close()
            raise
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor to watch for connections, -1 once closed."""
        return self._socket.fileno()

    def accept(self) -> socket.socket:
        """Return the next connection. Raises OSError if there is none."""
        return self._socket.accept()[0]

    def close(self) -> None:
        """Stop listening, and remove the socket unless the path is another listener's by now. May be repeated."""
        if self._socket.fileno() < 0:
            return
        with _folder_locked(self._path):
            self._socket.close()
            try:
                now = os.lstat(self._path)
            except FileNotFoundError:
                return
            # The inode number of a removed file may be used again at once; its time of creation is not.
            if (now.st_dev, now.st_ino, now.st_mtime_ns) == (
                self._made.st_dev,
                self._made.st_ino,
                self._made.st_mtime_ns,
            ):
                os.unlink(self._path)


def _check_folder(path: str) -> None:
    """Raise PermissionError if another user could put another socket at ``path``."""
    try:
        check_folder(os.path.dirname(os.path.abspath(path)), sticky=True)
    except PathRefused as error:
        raise PermissionError(errno.EACCES, str(error)) from None


@contextmanager
def _folder_locked(path: str) -> Iterator[None]:
    """Hold the folder's lock. Raises OSError if there is no such folder, or others hold the lock for too long."""
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + _FOLDER_S
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
        yield
    finally:
        os.close(folder)


def _remove_stale(path: str) -> None:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return  # another kind of file: binding reports that the path is in use
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)  # no process has this socket open
        except OSError:
            pass  # another socket type, another user's, or a full backlog: binding reports that the path is in use
