"""The program `poolrt`: a process of its own, from its first line to its exit status.

The process ends without the interpreter's own end: that restores the default handler of SIGINT, so an interrupt would end
the process by the signal, and it frees modules under threads of libraries that still run.
"""

from __future__ import annotations

import sys

from .interrupts import INTERRUPTED, Interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status; without ``arguments``, run that of this process and end the process."""
    if arguments is None:
        _run_program()
    from .command_line import run
    from .streams import flush_output, say

    try:
        return flush_output(run(arguments))
    except KeyboardInterrupt:
        say("poolrt: interrupted")
        return INTERRUPTED


def _run_program() -> NoReturn:
    interrupts = Interrupts()
    status = 1
    try:
        try:
            interrupts.take_over()
            status = _run_command(interrupts)
        finally:
            interrupts.over = True
    except BaseException as error:  # noqa: BLE001 - the process ends here, after any exception
        # An interrupt may have come before the line above, but none is raised while this one is handled.
        interrupts.over = True
        status = _status_of(error)
    _exit(status, interrupts)


def _run_command(interrupts: Interrupts) -> int:
    import faulthandler
    import os
    import warnings

    from .streams import open_missing_streams, say, say_warning

    has_output = open_missing_streams()
    faulthandler.enable(2)
    warnings.showwarning = say_warning
    if not has_output:
        say("poolrt: standard output is closed: redirect it to a file, or to /dev/null")
        return 1
    # OpenBLAS, which NumPy has, starts a thread a core as it is imported, and raises SIGINT if it cannot. No command uses it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from .command_line import run

    return run(sys.argv[1:], lambda: interrupts.count > 0)


def _status_of(error: BaseException) -> int:
    """Return the exit status for what has ended the command, and print what nothing else has printed."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    sys.excepthook(type(error), error, error.__traceback__)
    return 1


def _exit(status: int, interrupts: Interrupts) -> NoReturn:
    """Call the functions that libraries have registered for the end of the process, and end it."""
    import atexit
    import os

    from .streams import flush_output, say

    try:
        atexit._run_exitfuncs()
    except Exception as error:  # noqa: BLE001 - a library's; the job is done
        say(f"poolrt: at the end of the process: {type(error).__name__}: {error}")
    status = flush_output(status)
    if interrupts.count or status == INTERRUPTED:
        say("poolrt: interrupted")
        status = INTERRUPTED
    os._exit(status)
