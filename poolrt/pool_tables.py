"""The statistics of a pool as tables for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .html_table import table, text

#: Heads of the columns, and the workers' facts in them.
_WORKER: Final = {"pid": "pid", "state": "state", "runs": "runs", "memory": "rss_bytes"}


def tables(facts: Mapping[str, Any]) -> str:
    """Return the tables of what `Pool.stats` returns: workers, then queue, arena and cache."""
    workers = [[_amount(name, worker.get(name, "")) for name in _WORKER.values()] for worker in facts["workers"]]
    rows = [(part, _listing(facts[part])) for part in ("queue", "arena", "cache")]
    counts = f"workers: {len(workers)}, lost before: {facts['workers_lost']}, clients: {facts['clients']}"
    return table(f"Pool, {counts}", tuple(_WORKER), workers) + table("", ("part", "now"), rows)


def closed(error: Exception) -> str:
    """Return what is shown of a pool that does not answer."""
    return f"<div>Pool: {text(error)}</div>"


def _listing(facts: Mapping[str, Any]) -> str:
    """Return the counters that are not 0, those inside others with their names joined."""
    found = [
        f"{name} ({_listing(value)})" if isinstance(value, Mapping) else f"{name} {_amount(name, value)}"
        for name, value in facts.items()
        if value
    ]
    return ", ".join(found) or "empty"


def _amount(name: str, value: Any) -> Any:
    """Return bytes in MiB, seconds with one digit, anything else as it is."""
    if name.endswith("bytes") or name == "used":
        return f"{value / 2**20:.1f} MiB"
    return f"{value:.1f}" if isinstance(value, float) else value
