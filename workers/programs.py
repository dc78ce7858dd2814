"""New programs: processes that are started with an exec, because this one has threads by now and must not be forked."""

from __future__ import annotations

import os
import socket
import sys


def module_path() -> dict[str, str]:
    """Return the variable by which a new process finds the same modules, wherever this one got them from."""
    places = [os.path.abspath(place) for place in sys.path]
    return {"PYTHONPATH": os.pathsep.join(place for place in places if os.pathsep not in place)}


def start_program(module: str, sock: socket.socket, *arguments: str) -> int:
    """Start a module with ``sock`` as its descriptor 3, which is its first argument; return its process id.

    Raises OSError.
    """
    if not sys.executable:
        raise FileNotFoundError("this Python does not know its own executable, which processes are started with")
    command = [sys.executable, "-P", "-m", module, "3", *arguments]
    actions = [(os.POSIX_SPAWN_DUP2, sock.fileno(), 3)]
    return os.posix_spawn(sys.executable, command, {**os.environ, **module_path()}, file_actions=actions)
