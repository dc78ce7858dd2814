"""Ports that nobody uses."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a TCP port of the loopback device that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
