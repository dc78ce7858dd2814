"""`poolrt top`: the state of a running pool again and again, with what its workers do per second."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from poolrt.cli.command_line import add_common
from poolrt.cli.numbers import finite, positive
from poolrt.cli.report import Report, bytes_text, table
from poolrt.settings import Settings

from .served_state import ask, connected, summary
from .socket_option import add_socket
from .worker_rates import WorkerRates

if TYPE_CHECKING:
    from pathlib import Path

    from poolrt.pool import Pool

_DESCRIPTION: Final = """\
Show the workers, queue, memory and cache of a running pool (`poolrt serve`) again and again, until Ctrl-C.

For each worker: its state, runs so far and per second, the share of one core that it uses, and its resident memory.
On a terminal each view replaces the one before; elsewhere they follow one another, an empty line after each.

Exit status 1 if no server listens, or once it does not answer within 5 seconds.
"""
_EPILOG: Final = """\
examples:
  poolrt top
  poolrt top --interval 0.2
  poolrt top --count 10 > views.txt
  poolrt top --json | jq -c '[.workers[].runs_per_s]'

--json prints one object a view, on a line of its own: what poolrt status --json prints, and for each worker runs_per_s and
cores. Both are null in the first view, and of a worker that was not there before.
"""
#: Seconds between two views, at least: each asks the server and its store.
_LEAST_S: Final = 0.05


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    add_socket(parser)
    parser.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="S", help="seconds between views (default: 1)"
    )
    parser.add_argument("--count", type=positive, metavar="N", help="views until the command ends (default: no end)")
    add_common(parser, _execute, overrides=("socket",))


def _seconds(text: str) -> float:
    seconds = finite(text)
    if seconds < _LEAST_S:
        raise argparse.ArgumentTypeError(f"expected at least {_LEAST_S} seconds, got {text}")
    return seconds


def _execute(options: argparse.Namespace, settings: Settings, report: Report) -> int:
    path = settings.socket_path
    with connected(path) as pool, _shown(report) as show:
        for found in _states(pool, path, options.interval, options.count):
            show(found)
    return 0


def _states(pool: Pool, path: Path, interval_s: float, count: int | None) -> Iterator[dict[str, Any]]:
    """Yield the state of a pool every so many seconds."""
    rates = WorkerRates()
    shown = 0
    due = time.monotonic()
    while True:
        found = ask(pool, path)
        yield {**found, "workers": rates.add(found["workers"], time.monotonic())}
        shown += 1
        if shown == count:
            return
        now = time.monotonic()
        due = max(due + interval_s, now)
        time.sleep(due - now)


@contextmanager
def _shown(report: Report) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield what shows a state: in place of the one before on a terminal, else below it."""
    if report.as_json or not sys.stdout.isatty():

        def show(found: Mapping[str, Any]) -> None:
            if not report.as_json:
                for line in _lines(found):
                    report.say(line)
                report.say()
            report.result(found)
            report.flush()

        yield show
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(highlight=False), auto_refresh=False, screen=False) as live:
        yield lambda found: live.update(Text("\n".join(_lines(found)), no_wrap=True, overflow="ellipsis"), refresh=True)


def _lines(found: Mapping[str, Any]) -> list[str]:
    """Return a view as lines of text."""
    cells = [["worker", "state", "runs", "runs/s", "core", "resident"]]
    for worker in found["workers"]:
        runs, cores = worker["runs_per_s"], worker["cores"]
        cells.append(
            [
                str(worker["pid"] or "-"),
                worker["state"],
                str(worker["runs"]),
                "-" if runs is None else f"{runs:.0f}",
                "-" if cores is None else f"{cores * 100:.0f} %",
                bytes_text(worker["rss_bytes"]),
            ]
        )
    return [*table(summary(found)), "", *table(cells, right=frozenset({2, 3, 4, 5}))]
