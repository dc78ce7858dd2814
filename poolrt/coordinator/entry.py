"""Start a coordinator in this process: for one client that is connected already, or listening for many."""

from __future__ import annotations

import os
import socket

from poolrt.workers.channel import Channel, ChannelError
from poolrt.workers.nursery import start_nursery
from poolrt.workers.protocol import Kind, checked

#: Seconds that the client which started this process gets to send its settings.
_CONFIGURE_S = 30.0


def serve_client(sock: socket.socket) -> int:
    """Serve the client at the other end of a socket until it has gone; return the exit status."""
    # First of all, while there is one thread: what the nursery imports, it imports beside this process.
    nursery = start_nursery()
    from poolrt.settings import Settings

    from .loop import Loop

    channel = Channel(sock)
    try:
        message = channel.receive() if channel.wait(_CONFIGURE_S) else None
        if message is None or checked(message) is not Kind.CONFIGURE:
            return 1
    except ChannelError:
        return 1
    loop = Loop(Settings(**message[1]), nursery)
    loop.adopt(sock)
    loop.run()
    return 0


def serve_path(path: str | os.PathLike[str], settings: object = None) -> int:
    """Listen for clients of this user at ``path`` until SIGTERM, SIGINT or a client's stop; return the exit status.

    Raises OSError where the path is taken or cannot be made.
    """
    nursery = start_nursery()
    import signal

    from poolrt.settings import Settings

    from .loop import Loop
    from .peers import listen

    chosen = settings if isinstance(settings, Settings) else Settings.load()
    listener = listen(os.fspath(path))
    try:
        loop = Loop(chosen, nursery, listener)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: loop.stop())
        loop.run()
    finally:
        os.unlink(path)
    return 0
