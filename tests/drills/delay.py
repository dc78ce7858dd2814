"""How long threads of a drill were held up: they were ready to go on, and others had the cores."""

from __future__ import annotations

from pathlib import Path


def delayed_s() -> float:
    """Return how long this thread has been waiting for a core so far, in seconds; 0 where the kernel does not count it."""
    return _waited_s(Path("/proc/thread-self"))


def all_delayed_s() -> float:
    """Return the same of all threads of this process, one after the other."""
    return sum(map(_waited_s, Path("/proc/self/task").iterdir()))


def _waited_s(place: Path) -> float:
    try:
        return int((place / "schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
