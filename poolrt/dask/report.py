"""`stats`: what the workers of a Dask cluster created and found, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from poolrt.notebooks.html_table import table

from .clients import check_client
from .tasks import describe_worker

if TYPE_CHECKING:
    from distributed import Client

_HEAD: Final = ("worker", "created", "found", "waited", "hits", "fallbacks", "redis", "key", "home")


class ClusterStats(Mapping[str, Mapping[str, Any]]):
    """The counts of each worker by its address; printed, and shown in notebooks, as a table with a row for each.

    A row has ``created`` (kernels and functions that this worker created for all), ``found`` (in the store), ``waited``
    (created by another one meanwhile), ``hits`` (of primitives, in the memory of the process), ``fallbacks`` (functions
    that plain Numba compiled), ``redis``, ``key`` (the signing key's public id), ``home``, ``namespace`` and ``pid``.
    ``store`` has the counters of the whole namespace (see `CacheStore.stats`), ``created`` the sum of all workers.
    """

    def __init__(self, rows: Mapping[str, Mapping[str, Any]], store: Mapping[str, Any]) -> None:
        self._rows = dict(rows)
        self.store = dict(store)

    @property
    def created(self) -> int:
        """The kernels and functions that these workers created, in sum."""
        return sum(row["created"] for row in self._rows.values())

    def __getitem__(self, address: str) -> Mapping[str, Any]:
        return self._rows[address]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __str__(self) -> str:
        cells = [_HEAD, *self._cells()]
        widths = [max(len(row[place]) for row in cells) for place in range(len(_HEAD))]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)

    def _repr_html_(self) -> str:
        return table(f"{len(self)} workers, {self.created} created", _HEAD, self._cells())

    def _cells(self) -> list[tuple[str, ...]]:
        return [(address, *(str(row[name]) for name in _HEAD[1:])) for address, row in self._rows.items()]


def stats(client: Client) -> ClusterStats:
    """Return what each worker of a cluster has created and found so far.

    Raises ClusterError if one has no plugin or the client is closed, and TypeError for anything but a client.
    """
    check_client(client)
    workers: Any = client
    rows: dict[str, dict[str, Any]] = workers.run(describe_worker)
    store: dict[str, Any] = {}
    for address in list(rows)[:1]:
        store = workers.run(describe_worker, whole_store=True, workers=[address])[address].pop("store")
    return ClusterStats(
        {address: {n: v for n, v in row.items() if n != "store"} for address, row in rows.items()}, store
    )
