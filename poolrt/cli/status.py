"""`poolrt status`: the state of a running pool."""

from __future__ import annotations

import argparse
from typing import Final

from poolrt.cli.command_line import add_common
from poolrt.cli.report import Report, bytes_text
from poolrt.settings import Settings

from .served_state import ask, connected, summary
from .socket_option import add_socket

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

poolrt top shows the same again and again, with runs per second
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    add_socket(parser)
    add_common(parser, _execute, overrides=("socket",))


def _execute(options: argparse.Namespace, settings: Settings, report: Report) -> int:
    path = settings.socket_path
    with connected(path) as pool:
        found = ask(pool, path)
    report.say_table(summary(found))
    cells = [["worker", "state", "runs", "resident"]]
    for worker in found["workers"]:
        pid = str(worker["pid"] or "-")
        cells.append([pid, worker["state"], str(worker["runs"]), bytes_text(worker["rss_bytes"])])
    report.say()
    report.say_table(cells, right=frozenset({2, 3}))
    report.result(found)
    return 0
