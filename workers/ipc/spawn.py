"""New programs: processes started with an exec, because a process with threads must not fork."""

from __future__ import annotations

import os
import sys

from ..verbose.standard_error import has_standard_error

TYPE_CHECKING = False  # a pool's coordinator starts before `typing` and `socket` are imported
if TYPE_CHECKING:
    from typing import Any, Protocol

    class _HasDescriptor(Protocol):
        def fileno(self) -> int: ...


def module_path() -> dict[str, str]:
    """Return PYTHONPATH for a new process that imports the same modules as this one."""
    places = [os.path.abspath(place) for place in sys.path]
    return {"PYTHONPATH": os.pathsep.join(place for place in places if os.pathsep not in place)}


def spawn_actions(sock: _HasDescriptor) -> list[tuple[Any, ...]]:
    """Return the file actions that give a new process ``sock`` as descriptor 3, no input, and output to standard error.

    If this process has no standard error, the new one writes to nowhere: descriptor 2 may be a file by now, ``sock`` even.
    """
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_DUP2, sock.fileno(), 3),
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
    ]
    if not has_standard_error():
        actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
    return [*actions, (os.POSIX_SPAWN_DUP2, 2, 1)]


def start_program(module: str, sock: _HasDescriptor, *arguments: str) -> int:
    """Start a module with ``sock`` as its descriptor 3, which is its first argument; return its process id.

    Raises OSError.
    """
    if not sys.executable:
        raise FileNotFoundError("cannot start a process: sys.executable is empty")
    command = [sys.executable, "-P", "-m", module, "3", *arguments]
    environment = {**os.environ, **module_path()}
    return os.posix_spawn(sys.executable, command, environment, file_actions=spawn_actions(sock))
