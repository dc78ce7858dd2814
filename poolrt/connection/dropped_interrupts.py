"""Interrupts that arrive in a finalizer: CPython prints their KeyboardInterrupt and drops it, and the program goes on."""

from __future__ import annotations

import _thread
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
    try:
        if _is_interrupt(dropped):
            _thread.start_new_thread(_send_again, (dropped.object,))
            return
    except KeyboardInterrupt:
        # Another one; it would be dropped here.
        _thread.start_new_thread(_send_again, (None,))
        return
    except RuntimeError:
        pass  # the interpreter ends, or no thread can be started
    sys.__unraisablehook__(dropped)


def _is_interrupt(dropped: UnraisableHookArgs) -> bool:
    return (
        issubclass(dropped.exc_type, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and callable(signal.getsignal(signal.SIGINT))
    )


def _send_again(finalizer: object) -> None:
    """Call a finalizer that was interrupted before it began, in this thread, which has no interrupts; then interrupt."""
    if isinstance(finalizer, weakref.finalize):
        finalizer()
    main = threading.main_thread().ident
    if main is None:
        return
    time.sleep(_AGAIN_S)
    while _is_in_hook(main):
        time.sleep(_AGAIN_S)
    signal.pthread_kill(main, signal.SIGINT)


def _is_in_hook(thread: int) -> bool:
    """Return whether a thread executes `_hook`, which would drop an interrupt as the finalizer did."""
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code is not _hook.__code__:
        frame = frame.f_back
    return frame is not None
