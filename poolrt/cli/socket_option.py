"""The option `--socket` of the commands for a running pool."""

from __future__ import annotations

import argparse
from pathlib import Path

from poolrt.cli.report import JobFailed


def add_socket(parser: argparse.ArgumentParser) -> None:
    """Add the option; its default is the setting of the same name."""
    parser.add_argument(
        "--socket",
        metavar="PATH",
        help="the server's socket (default: POOLRT_SOCKET, else poolrt.sock in $XDG_RUNTIME_DIR or the home folder)",
    )


def no_server(path: Path) -> JobFailed:
    """Return the error for a path where no server of this user listens."""
    return JobFailed(f"no server listens at {path}: start one with poolrt serve --socket {path}")
