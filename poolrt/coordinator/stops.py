"""Processes that a signal has stopped, and how one stop is told from the next."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

#: The line of a process's status with the switches that its first thread has made by itself: each stop is one.
_SWITCHES: Final = "voluntary_ctxt_switches:"


class Stop(NamedTuple):
    """One stop of a process: another one has other ``switches``, so a process that goes on between two looks does not hang."""

    switches: int

    def __str__(self) -> str:
        return "stopped by a signal"


def find_stop(pid: int) -> Stop | None:
    """Return the stop of a process; None for one that is not stopped, has exited, or is held by a debugger."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            if file.read().rpartition(")")[2].split()[0] != "T":
                return None
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            found = [line.split()[1] for line in file if line.startswith(_SWITCHES)]
    except (OSError, IndexError):
        return None
    return Stop(int(found[0]) if found else 0)
