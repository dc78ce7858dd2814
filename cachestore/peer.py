"""The user at the other end of a unix socket, as the kernel knows it."""

from __future__ import annotations

import _socket
import errno
import os
import struct
from typing import Final

#: Process, user and group id.
_CREDENTIALS: Final = struct.Struct("3i")


def credentials(sock: _socket.socket) -> tuple[int, int]:
    """Return the process id and user id of the peer, as the kernel reports them (SO_PEERCRED)."""
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def check_peer(sock: _socket.socket) -> None:
    """Raise PermissionError unless the peer is a process of this user. Root's processes accept only root's."""
    uid = credentials(sock)[1]
    if uid != os.geteuid():
        place = sock.getpeername()
        raise PermissionError(
            errno.EACCES,
            f"the server at {place} belongs to user {uid}, not to user {os.geteuid()}: nothing was sent; "
            "end that server, or name another folder (POOLRT_HOME)",
        )
