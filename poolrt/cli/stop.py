"""`poolrt stop`: end a running pool and wait until it is gone."""

from __future__ import annotations

import argparse
from typing import Final

from poolrt.cli.main import add_common
from poolrt.cli.report import JobFailed, Report
from poolrt.settings import Settings

from .socket_option import add_socket, nobody_at

_DESCRIPTION: Final = """\
End a running pool (`poolrt serve`), all its processes and its shared memory, and wait until they are gone.

Programs that are connected to it get an error (CoordinatorLost); what they had under way is given up. The kernel cache
stays. Exit status 1 where no server listens, or it does not end in time.
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
    from poolrt.errors import CoordinatorLost
    from poolrt.server import stop_server

    path = settings.socket_path
    try:
        gone = stop_server(path)
    except CoordinatorLost as error:
        raise nobody_at(path) from error
    if not gone:
        raise JobFailed(f"the server at {path} was told to end, and has not done so yet")
    report.say("stopped")
    report.result({"stopped": True, "socket": str(path)})
    return 0
