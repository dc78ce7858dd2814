"""The standard streams of the program `poolrt`, which may be closed, full or read by a process that has exited."""

from __future__ import annotations

import io
import os
import sys


def open_missing_streams() -> bool:
    """Open /dev/null in place of closed standard streams; return whether standard output was open.

    Otherwise the next files and sockets would get their descriptors, and printed text would go there.
    """
    has_output = sys.stdout is not None
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened == number:
                os.set_inheritable(number, True)
            else:
                os.dup2(opened, number)
                os.close(opened)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # paths need not be text
    return has_output


def say(text: str, end: str = "\n") -> None:
    """Print a line on standard error, if that can be written; there is no other place to report that it cannot."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def say_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line, without the place in the code. The arguments are those of `warnings.showwarning`."""
    say(f"poolrt: warning: {message}")


def flush_output(status: int) -> int:
    """Write what standard output still holds; return ``status``, or 1 if that cannot be written and it was 0."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        discard_output(error)
        return status or 1
    return status


def discard_output(error: Exception) -> None:
    """Redirect standard output, which cannot be written, to /dev/null, and say why unless its reader has exited."""
    if not isinstance(error, BrokenPipeError):
        say(f"poolrt: {describe(error)}")
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass  # it has no descriptor; nothing flushes it again


def describe(error: Exception) -> str:
    """Return the line for standard output that cannot be written."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"standard output cannot be written: {reason}"
