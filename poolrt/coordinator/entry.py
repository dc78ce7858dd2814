"""Start a coordinator in this process: for one client that is connected already, or listening for many."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import poolrt.workers.process  # noqa: F401 - see serve_client
from poolrt.workers.channel import Channel, ChannelError
from poolrt.workers.nursery import start_nursery
from poolrt.workers.protocol import Kind, checked

if TYPE_CHECKING:
    from poolrt.settings import Settings

#: Seconds that the client which started this process gets to send its settings.
_CONFIGURE_S = 30.0


def serve_client(sock: socket.socket) -> int:
    """Serve the client at the other end of a socket until it has gone; return the exit status."""
    # First of all, while there is one thread. What both need is imported before, the rest by each beside the other.
    nursery = start_nursery(sock)
    from .configuration import Configuration
    from .loop import Loop

    channel = Channel(sock)
    try:
        message = channel.receive() if channel.wait(_CONFIGURE_S) else None
        if message is None or checked(message) is not Kind.CONFIGURE:
            return 1
    except ChannelError:
        return 1
    loop = Loop(Configuration(**message[1]), nursery)
    loop.adopt(sock)
    loop.run()
    return 0


def serve_path(path: str | os.PathLike[str], settings: Settings) -> int:
    """Listen for clients of this user at ``path`` until SIGTERM, SIGINT or a client's stop; return the exit status.

    Raises OSError where the path is taken or cannot be made.
    """
    nursery = start_nursery()
    import signal

    from .configuration import Configuration
    from .loop import Loop
    from .peers import listen

    listener = listen(os.fspath(path))
    try:
        loop = Loop(Configuration.of(settings), nursery, listener)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: loop.stop())
        loop.run()
    finally:
        os.unlink(path)
    return 0
