"""Identify a process so that others on the same host can prove that it is dead.

A process id alone is reused; with the boot, the pid namespace and the start time of the process it is unique.
"""

from __future__ import annotations

import os
import socket
from typing import Final

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
#: Position of the start time among the fields of /proc/<pid>/stat that follow the command's name (proc(5): field 22).
_START_TIME: Final = 19


def own_identity() -> str:
    """Return this process as `host boot namespace pid start`; without /proc the last four are `-`."""
    host = socket.gethostname().replace(" ", "_") or "-"
    place = _own_place()
    start = _state_and_start(os.getpid())
    if place is None or start is None:
        return f"{host} - - - -"
    return f"{host} {place[0]} {place[1]} {os.getpid()} {start[1]}"


def is_dead(identity: str) -> bool:
    """Return whether the process is certainly dead; False when this process cannot see that."""
    parts = identity.split(" ")
    if len(parts) != 5 or not parts[3].isdigit() or (parts[1], parts[2]) != _own_place():
        return False
    found = _state_and_start(int(parts[3]))
    return found is None or found[1] != parts[4] or found[0] in "ZX"


def _own_place() -> tuple[str, str] | None:
    """Return the boot and the pid namespace, within which process ids are comparable."""
    try:
        with open(_BOOT_ID) as file:
            return file.read().strip(), os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _state_and_start(pid: int) -> tuple[str, str] | None:
    """Return the one-letter state and the start time of a process, None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0].decode(), fields[_START_TIME].decode()
