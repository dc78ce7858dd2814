"""What workers do per second, from two of their states."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from poolrt.cachestore.deferred_namedtuple import NamedTuple


class _Seen(NamedTuple):
    """A worker when it was last seen: monotonic time, runs, and seconds of processor time."""

    at: float
    runs: int
    processor_s: float | None


class WorkerRates:
    """The workers of a pool on this machine, as they were last seen."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def add(self, workers: Iterable[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
        """Return workers, as `Pool.stats` has them, with ``runs_per_s`` and ``cores`` since they were last added.

        ``cores`` is the processor time used per second. Both are None of a worker that was not there. ``now`` is the
        monotonic time in seconds.
        """
        found, seen = [], {}
        for worker in workers:
            pid = worker["pid"]
            last, this = self._seen.get(pid), _Seen(now, worker["runs"], processor_seconds(pid))
            if pid:
                seen[pid] = this
            found.append(
                {
                    **worker,
                    "runs_per_s": _per_second(last, this, "runs"),
                    "cores": _per_second(last, this, "processor_s"),
                }
            )
        self._seen = seen
        return found


def processor_seconds(pid: int) -> float | None:
    """Return the processor time of a process of this machine in seconds, None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _per_second(last: _Seen | None, this: _Seen, field: str) -> float | None:
    """Return the increase of a field per second; None if it is not known, or fell because a worker was replaced."""
    if last is None or this.at <= last.at:
        return None
    before, after = getattr(last, field), getattr(this, field)
    if before is None or after is None or after < before:
        return None
    return float((after - before) / (this.at - last.at))
