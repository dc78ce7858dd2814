"""`python -m poolrt.coordinator DESCRIPTOR`: the coordinator of a pool that a client has just made."""

from __future__ import annotations

import socket
import sys

from .entry import serve_client

if __name__ == "__main__":
    sys.exit(serve_client(socket.socket(fileno=int(sys.argv[1]))))
