"""`python -m poolrt.coordinator DESCRIPTOR`: the coordinator of a pool that a client has just started."""

from __future__ import annotations

import gc
import socket
import sys

# Imports create millions of objects that are never freed: collecting garbage would take a tenth of the start.
gc.disable()

if __name__ == "__main__":
    from .entry import serve_client

    sys.exit(serve_client(socket.socket(fileno=int(sys.argv[1]))))
