"""`python -m poolrt.coordinator DESCRIPTOR`: the coordinator of a pool that a client has just made."""

from __future__ import annotations

import gc
import socket
import sys

# Imports make millions of objects that live for ever: looking for garbage among them would be a tenth of the start.
gc.disable()

if __name__ == "__main__":
    from .entry import serve_client

    sys.exit(serve_client(socket.socket(fileno=int(sys.argv[1]))))
