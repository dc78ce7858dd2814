"""The state of a running pool, as the commands `status` and `top` ask for and print it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from poolrt.cli.report import JobFailed, bytes_text

from .socket_option import no_server

if TYPE_CHECKING:
    from poolrt.pool import Pool

#: Seconds to wait for the server's answer; it answers between two messages, and only after its store has.
_ANSWER_S: Final = 5.0


@contextmanager
def connected(path: Path) -> Iterator[Pool]:
    """Yield the pool that listens at a path. Raises JobFailed if none does, and if it stops answering in the block."""
    from poolrt.connection.server import connect_socket
    from poolrt.errors import CoordinatorLoss
    from poolrt.pool import connect

    try:
        connect_socket(path).close()
    except CoordinatorLoss as error:
        raise no_server(path) from error
    try:
        with connect(path, start_timeout_s=_ANSWER_S, reconnect_timeout_s=0) as pool:
            yield pool
    except (CoordinatorLoss, TimeoutError) as error:
        raise JobFailed(f"the server at {path} does not answer: {error}") from error


def ask(pool: Pool, path: Path) -> dict[str, Any]:
    """Return what `Pool.stats` returns, the socket and the threads of a worker, without this client."""
    facts = pool.stats(timeout=_ANSWER_S)
    return {"socket": str(path), "threads": pool.threads, **facts, "clients": facts["clients"] - 1}


def summary(found: Mapping[str, Any]) -> list[list[str]]:
    """Return rows of what is true of the pool as a whole: a name and a text."""
    workers, queue, arena, cache = found["workers"], found["queue"], found["arena"], found["cache"]
    lost = found["workers_lost"]
    rows = [
        ["server", f"process {found['pid']} at {found['socket']}"],
        ["clients", str(found["clients"])],
        ["workers", f"{len(workers)} with {found['threads']} threads each, {lost} replaced since the start"],
        ["queue", f"{queue['waiting']} runs waiting, {queue['in_flight']} at workers, {queue['creating']} creations"],
        ["memory", f"{bytes_text(arena['used'])} of {bytes_text(arena['bytes'])} shared memory in use"],
    ]
    if "error" in cache:
        rows.append(["cache", str(cache["error"])])
    else:
        hits = cache["hits"]
        rows.append(["cache", f"{cache['entries']} entries, {cache['creations']} created, {sum(hits.values())} reused"])
    return rows
