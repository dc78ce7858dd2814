"""`poolrt status`: the state of a running pool."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from poolrt.cli.command_line import add_common
from poolrt.cli.report import JobFailed, Report, bytes_text
from poolrt.settings import Settings

from .socket_option import add_socket, no_server

_DESCRIPTION: Final = """\
Show the workers, queue, memory and cache of a running pool (`poolrt serve`).

Exit status 1 if no server listens, or if it does not answer within 5 seconds.
"""
_EPILOG: Final = """\
examples:
  poolrt status
  poolrt status --socket /run/user/1000/models.sock
  poolrt status --json | jq '.workers[].state'
  poolrt status > /dev/null 2>&1 || poolrt serve &
"""
#: Seconds to wait for the server's answer; it answers between two messages, and only after its store has.
_ANSWER_S: Final = 5.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    add_socket(parser)
    add_common(parser, _execute, overrides=("socket",))


def _execute(options: argparse.Namespace, settings: Settings, report: Report) -> int:
    from poolrt.errors import CoordinatorLoss
    from poolrt.pool import connect
    from poolrt.server import connect_socket

    path = settings.socket_path
    try:
        connect_socket(path).close()
    except CoordinatorLoss as error:
        raise no_server(path) from error
    try:
        with connect(path, start_timeout_s=_ANSWER_S, reconnect_timeout_s=0) as pool:
            stats = pool.stats(timeout=_ANSWER_S)
            threads = pool.threads
    except (CoordinatorLoss, TimeoutError) as error:
        raise JobFailed(f"the server at {path} does not answer: {error}") from error
    found = {"socket": str(path), "threads": threads, **stats, "clients": stats["clients"] - 1}  # without this command
    _print_state(path, found, report)
    report.result(found)
    return 0


def _print_state(path: Path, found: Mapping[str, Any], report: Report) -> None:
    workers, queue, arena, cache = found["workers"], found["queue"], found["arena"], found["cache"]
    lost = found["workers_lost"]
    rows = [
        ["server", f"process {found['pid']} at {path}"],
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
    report.say_table(rows)
    cells = [["worker", "state", "runs", "resident"]]
    for worker in workers:
        pid = str(worker["pid"] or "-")
        cells.append([pid, worker["state"], str(worker["runs"]), bytes_text(worker["rss_bytes"])])
    report.say()
    report.say_table(cells, right=frozenset({2, 3}))
