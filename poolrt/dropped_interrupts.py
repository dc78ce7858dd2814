"""Interrupts that arrive in a finalizer: CPython prints their KeyboardInterrupt and drops it, and the program goes on."""

from __future__ import annotations

import signal
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

#: Seconds from a dropped interrupt to the next one: the finalizer has returned by then, or the next one is dropped as well.
_AGAIN_S: Final = 0.002


def resend_dropped_interrupts() -> None:
    """From now on, send an interrupt of the main thread again if a finalizer has dropped it. May be called repeatedly.

    A program that has a `sys.unraisablehook` of its own keeps it.
    """
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _hook


def _hook(dropped: UnraisableHookArgs, /) -> None:
    interrupted = (
        issubclass(dropped.exc_type, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
    )
    if interrupted and callable(signal.getsignal(signal.SIGINT)):
        try:
            threading.Thread(target=_send_again, args=(dropped.object,), name="poolrt-interrupt", daemon=True).start()
            return
        except RuntimeError:
            pass  # the interpreter ends, or no thread can be started
    sys.__unraisablehook__(dropped)


def _send_again(finalizer: object) -> None:
    """Call a finalizer that was interrupted before it began, in this thread, which has no interrupts; then interrupt."""
    if isinstance(finalizer, weakref.finalize):
        finalizer()
    time.sleep(_AGAIN_S)
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, signal.SIGINT)
