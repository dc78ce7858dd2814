"""Ports that no other program gets."""

from __future__ import annotations

import os
import socket
import weakref
from typing import Final

_HOST: Final = "127.0.0.1"
_HIGHEST: Final = 65535


class Port:
    """A TCP port of the loopback device that is kept for a server of ours for as long as this object lives.

    The kernel gives it to no process that asks for any port, not while the server restarts either; servers that allow
    its reuse, as Redis does, can listen on it. ``also`` is the distance of a second one that is kept with it, 0 for none.
    """

    def __init__(self, also: int = 0) -> None:
        self.number = 0
        while not self.number:
            first = _bound(0)
            number: int = first.getsockname()[1]
            kept = [first]
            try:
                if also:
                    kept.append(_bound(number + also))
            except OSError:  # the second one is taken
                first.close()
                continue
            self.number = number
            for one in kept:
                weakref.finalize(self, os.close, one.detach())


def _bound(number: int) -> socket.socket:
    """Return a socket that has a port, any one for 0. Raises OSError where that cannot be."""
    if number > _HIGHEST:
        raise OSError(f"{number} is no port")
    bound = socket.socket()
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((_HOST, number))
    except OSError:
        bound.close()
        raise
    return bound
