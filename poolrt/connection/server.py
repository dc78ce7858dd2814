"""Connect to a coordinator that listens at a path, and stop it."""

from __future__ import annotations

import os
import select
import socket
import struct
from typing import Final

from poolrt.cachestore.peer import credentials
from poolrt.coordinator.peers import open_pidfd
from poolrt.errors import CoordinatorLoss, coordinator_lost
from poolrt.workers.ipc.channel import Channel
from poolrt.workers.ipc.protocol import Kind

#: Seconds that a coordinator may take to accept a connection, between two messages.
_CONNECT_S: Final = 10
#: Longest path that the address of a socket has room for, its final zero not counted (unix(7)).
_ADDRESS_BYTES: Final = 107


def lasting_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path if the address of a socket has room for it, so that it outlasts a change of the folder."""
    absolute = os.path.abspath(os.fspath(path))
    return absolute if len(os.fsencode(absolute)) <= _ADDRESS_BYTES else os.fspath(path)


def connect_socket(path: str | os.PathLike[str]) -> socket.socket:
    """Return a socket connected to the coordinator at ``path``.

    Raises CoordinatorLost if no coordinator listens there, or one of another user.
    """
    place = os.fspath(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        # Not settimeout, which makes a connection fail at once while many others wait to be accepted.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _CONNECT_S, 0))
        sock.connect(place)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 0))
        if credentials(sock)[1] != os.geteuid():
            raise coordinator_lost(f"the coordinator at {place} belongs to another user: choose another socket")
    except (OSError, ValueError) as error:
        sock.close()
        reason = getattr(error, "strerror", None) or error
        remedy = f"start one with poolrt serve --socket {place}"
        raise coordinator_lost(f"no coordinator listens at {place}: {reason}; {remedy}") from error
    except CoordinatorLoss:
        sock.close()
        raise
    return sock


def stop_server(path: str | os.PathLike[str], timeout: float = 10.0) -> bool:
    """End the coordinator at ``path`` and all its processes; return whether it exits within ``timeout`` seconds.

    Its clients get CoordinatorLost. Raises CoordinatorLost if there is none.
    """
    sock = connect_socket(path)
    process = open_pidfd(credentials(sock)[0])
    channel = Channel(sock)
    try:
        channel.send([Kind.STOP])
        if process < 0:
            return channel.wait(timeout)  # from another container only the end of the connection is visible
        poll = select.poll()
        poll.register(process, select.POLLIN)
        return bool(poll.poll(timeout * 1000))
    finally:
        channel.close()
        if process >= 0:
            os.close(process)
