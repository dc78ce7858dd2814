"""A listening socket at a path, which only this user can connect to, and which goes when the listener does.

Guarantees: a socket that a killed process has left behind is replaced; one that somebody listens on, and anything that is
no socket, stays as it is; of two that start at once one is refused. Who listens in a folder holds its lock meanwhile:
between a look at a path and its removal it may have become somebody else's.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Longest wait, in seconds, for others who are about to listen in the same folder.
_FOLDER_S: Final = 5.0
#: Connections that wait until they are accepted.
_BACKLOG: Final = 64


class Listener:
    """Listens at ``path``. Raises OSError where somebody listens there already, or the path cannot be used."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            # The path gets this mode, from its first moment on; a mask would be that of all threads of the process.
            os.fchmod(self._socket.fileno(), 0o600)
            with _folder_alone(path):
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
        """Return the next connection. Raises OSError where there is none."""
        return self._socket.accept()[0]

    def close(self) -> None:
        """Stop listening, and remove the socket unless the path is another's by now. May be repeated."""
        if self._socket.fileno() < 0:
            return
        with _folder_alone(self._path):
            self._socket.close()
            try:
                now = os.lstat(self._path)
            except FileNotFoundError:
                return
            # The number of a file that is gone may be given again at once; the time of its making is not.
            if (now.st_dev, now.st_ino, now.st_mtime_ns) == (
                self._made.st_dev,
                self._made.st_ino,
                self._made.st_mtime_ns,
            ):
                os.unlink(self._path)


@contextmanager
def _folder_alone(path: str) -> Iterator[None]:
    """Keep others who listen in the same folder out. Raises OSError where there is no such folder, or they take long."""
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
            return  # somebody's file: binding says that the path is taken
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)  # a socket that nobody has open
        except OSError:
            pass  # of another kind, not ours, or with a full backlog: binding says that the path is taken
