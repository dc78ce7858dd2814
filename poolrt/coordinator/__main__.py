"""`python -m poolrt.coordinator DESCRIPTOR`: the coordinator of a pool that a client has just started."""

from __future__ import annotations

import gc
import socket
import sys

# Imports create millions of objects that are never freed: collecting garbage would take a tenth of the start.
gc.disable()

if __name__ == "__main__":
    try:
        from .entry import serve_client
    except (ImportError, MemoryError, OSError) as failure:
        # Most often the memory is too small for the libraries.
        sys.exit(f"poolrt: the coordinator could not start: {type(failure).__name__}: {failure}")
    sys.exit(serve_client(socket.socket(fileno=int(sys.argv[1]))))
