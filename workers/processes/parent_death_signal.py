"""What ties a process to the one that started it, and makes its standard streams harmless."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process the moment its parent dies, however that happens.

    ``parent`` is the process id the caller saw before it was started: a parent that died in between is noticed too.
    Raises OSError where the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    if os.getppid() != parent:
        os._exit(1)


def detach_streams() -> None:
    """Take standard input away and send standard output to standard error: a print must not disturb a program's output."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdout.flush()
    os.dup2(2, 1)


def reset_signals() -> None:
    """Undo what a parent set: interruptions from the terminal are the client's business, everything else is as usual."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
