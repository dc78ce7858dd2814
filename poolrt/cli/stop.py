"""`poolrt stop`: stop a running pool and wait until its processes have exited."""

from __future__ import annotations

import argparse
from typing import Final

from poolrt.cli.command_line import add_common
from poolrt.cli.report import JobFailed, Report
from poolrt.settings import Settings

from .socket_option import add_socket, no_server

_DESCRIPTION: Final = """\
Stop a running pool (`poolrt serve`), wait until its processes have exited, and free its shared memory.

Connected programs get the error CoordinatorLost and lose their unfinished runs. The kernel cache stays. Exit status 1 if
no server listens, or if it does not exit in time.
"""
_EPILOG: Final = """\
examples:
  poolrt stop
  poolrt stop --socket /run/user/1000/models.sock
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    add_socket(parser)
    add_common(parser, _execute, overrides=("socket",))


def _execute(options: argparse.Namespace, settings: Settings, report: Report) -> int:
    from poolrt.connection.server import stop_server
    from poolrt.errors import CoordinatorLoss

    path = settings.socket_path
    try:
        gone = stop_server(path)
    except CoordinatorLoss as error:
        raise no_server(path) from error
    if not gone:
        raise JobFailed(f"the server at {path} got the request to stop and has not exited yet: see poolrt status")
    report.say("stopped")
    report.result({"stopped": True, "socket": str(path)})
    return 0
