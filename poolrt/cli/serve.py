"""`poolrt serve`: one pool for all programs of this user; it outlives its clients."""

from __future__ import annotations

import argparse
import errno
from typing import TYPE_CHECKING, Final

from poolrt.cli.command_line import add_common
from poolrt.cli.numbers import positive
from poolrt.cli.report import JobFailed, Report, bytes_text
from poolrt.settings import Settings

from .socket_option import add_socket

if TYPE_CHECKING:
    from pathlib import Path

    from poolrt.coordinator.configuration import Configuration

_DESCRIPTION: Final = """\
Keep a pool running that many programs share: workers, shared memory, kernels that are already mapped.

A program connects with poolrt.connect(PATH), or `poolrt run MODEL --socket PATH`. Only programs of the same user can.
The server runs in the foreground until it gets SIGTERM or SIGINT (Ctrl-C), or until `poolrt stop`. It then ends all of
its processes and leaves nothing behind. When a client exits or is killed, the server frees all that the client held.
"""
_EPILOG: Final = """\
examples:
  poolrt serve
  poolrt serve --socket /run/user/1000/models.sock --workers 4 --threads 2
  poolrt serve --config production.toml
  poolrt serve --json | { read -r facts; echo "$facts" | jq .socket; cat; }

--json prints its object once clients can connect: socket, pid, workers, threads, arena_bytes
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    add_socket(parser)
    parser.add_argument("--workers", type=positive, metavar="N", help="worker processes (default: one for each core)")
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="threads of one worker (default: cores / workers)"
    )
    add_common(parser, _execute, overrides=("socket", "workers", "threads"))


def _execute(options: argparse.Namespace, settings: Settings, report: Report) -> int:
    from poolrt.coordinator.entry import serve_path

    path = settings.socket_path
    if not settings.socket:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return serve_path(path, settings, lambda configuration: _print_address(path, configuration, report))
    except OSError as error:
        raise JobFailed(_explain(path, error)) from error


def _print_address(path: Path, configuration: Configuration, report: Report) -> None:
    import os

    workers, threads = configuration.workers, configuration.threads
    report.say(
        f"listening at {path}: {workers} worker{'s' * (workers > 1)} of {threads} thread{'s' * (threads > 1)}, "
        f"{bytes_text(configuration.arena_bytes)} of shared memory at most; to stop: poolrt stop, or Ctrl-C"
    )
    report.result(
        {
            "socket": str(path),
            "pid": os.getpid(),
            "workers": workers,
            "threads": threads,
            "arena_bytes": configuration.arena_bytes,
        }
    )
    report.flush()


def _explain(path: Path, error: OSError) -> str:
    """Return why no server can listen at a path, and what to do."""
    if error.errno == errno.EADDRINUSE:
        from poolrt.errors import CoordinatorLoss
        from poolrt.server import connect_socket

        try:
            connect_socket(path).close()
        except CoordinatorLoss:
            return f"{path} exists and is not the socket of a server: choose another --socket"
        return f"a server already listens at {path}: see it with poolrt status, end it with poolrt stop"
    return f"cannot listen at {path}: {error.strerror or error}; choose another --socket"
