"""Interrupts (SIGINT) of the program `poolrt`: each ends it, also one whose KeyboardInterrupt is swallowed.

CPython prints and drops an exception that leaves a finalizer, and some code drops every exception. So a KeyboardInterrupt
is raised again until it ends the program. While one is on its way up, through `finally` and `with` blocks that end
processes, no second one is raised: all their waits are bounded. None is raised while a module is imported: C modules
crash when Python code that they call at their start raises one (protobuf's, for one).
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

#: Exit status of an interrupted program, as shells have it: 128 and the number of SIGINT.
INTERRUPTED = 130
#: Seconds after which an interrupt that was swallowed is raised again.
_AGAIN_S = 0.02
#: Seconds that blocks may take to end processes; after that another interrupt ends the program at once.
_BLOCKS_S = 10.0
#: The file of the interpreter's code that imports modules, as tracebacks name it.
_IMPORTS = "<frozen importlib._bootstrap>"


class Interrupts:
    """The interrupts of this process since `take_over`."""

    __slots__ = ("_since", "count", "over")

    def __init__(self) -> None:
        #: Interrupts so far.
        self.count = 0
        #: Whether the job is over. From then on an interrupt is counted only, and a second one ends the process at once.
        self.over = False
        self._since = 0.0

    def take_over(self) -> None:
        """Handle SIGINT from now on, unless this process ignores it (`nohup`, a shell's background job)."""
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return
        sys.unraisablehook = _hook
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.signal(signal.SIGINT, self._on_interrupt)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1:
            self._since = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _AGAIN_S)
        if self.over:
            if self.count > 1:
                _exit_now()
        elif self._may_raise(frame):
            raise KeyboardInterrupt
        elif self.count > 1 and time.monotonic() - self._since > _BLOCKS_S:
            _exit_now()

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        if self._may_raise(frame):
            raise KeyboardInterrupt

    def _may_raise(self, frame: FrameType | None) -> bool:
        return not self.over and not _is_on_its_way() and not _imports(frame)


def _is_on_its_way() -> bool:
    """Return whether a KeyboardInterrupt is being handled, or an exception that one has led to."""
    error = sys.exc_info()[1]
    for _ in range(100):  # chains can be circles
        if error is None or isinstance(error, KeyboardInterrupt):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt)


def _imports(frame: FrameType | None) -> bool:
    """Return whether a frame, or one that has called it, imports a module."""
    while frame is not None and frame.f_code.co_filename != _IMPORTS:
        frame = frame.f_back
    return frame is not None


def _exit_now() -> None:
    """End the process. Nothing stays behind: the coordinator ends when its connection closes."""
    try:
        os.write(2, b"poolrt: interrupted\n")
    except OSError:
        pass  # standard error is closed
    os._exit(INTERRUPTED)


def _hook(dropped: Any) -> None:
    """Print an exception that CPython drops, unless it is a KeyboardInterrupt, which is raised again."""
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
