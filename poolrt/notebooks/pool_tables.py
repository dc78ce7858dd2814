"""The statistics of a pool as tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .html_table import table, text

#: Heads of the columns, and the workers' facts in them.
_WORKER: Final = {"pid": "pid", "state": "state", "runs": "runs", "memory": "rss_bytes"}


def tables(facts: Mapping[str, Any]) -> str:
    """Return the tables of what `Pool.stats` returns: workers, then queue, arena and cache."""
    workers = [[_amount(name, worker.get(name, "")) for name in _WORKER.values()] for worker in facts["workers"]]
    rows = [row for part in ("queue", "arena", "cache") for row in _rows(part, facts[part])]
    counts = f"workers: {len(workers)}, lost before: {facts['workers_lost']}, clients: {facts['clients']}"
    return table(f"Pool, {counts}", tuple(_WORKER), workers) + table("", ("part", "now"), rows)


def closed(error: Exception) -> str:
    """Return what is shown of a pool that does not answer."""
    return f"<div>Pool: {text(error)}</div>"


def _rows(part: str, facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a row with the numbers of a part that are not 0, then one for each table inside it that has such numbers."""
    numbers = [
        f"{name} {_amount(name, value)}" for name, value in facts.items() if value and not isinstance(value, Mapping)
    ]
    yield part, ", ".join(numbers) or "empty"
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from (row for row in _rows(f"{part}, {name}", value) if row[1] != "empty")


def _amount(name: str, value: Any) -> Any:
    """Return bytes in MiB, seconds with one digit, anything else as it is."""
    if name.endswith("bytes") or name == "used":
        return f"{value / 2**20:.1f} MiB"
    return f"{value:.1f}" if isinstance(value, float) else value
