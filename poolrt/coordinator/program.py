"""The program of a process that a client has just started: the coordinator of a pool, at the other end of a socket."""

from __future__ import annotations

import _socket
import gc
import sys


def main(descriptor: int) -> None:
    """Serve the client at the other end of a socket, and exit."""
    # Imports create millions of objects that are never freed: collecting garbage would take a tenth of the start.
    gc.disable()
    try:
        from .entry import serve_client
    except (ImportError, MemoryError, OSError) as failure:
        # Most often the memory is too small for the libraries.
        sys.exit(f"poolrt: the coordinator could not start: {type(failure).__name__}: {failure}")
    sys.exit(serve_client(_socket.socket(fileno=descriptor)))
