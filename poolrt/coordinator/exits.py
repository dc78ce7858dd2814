"""How a process has ended: the signal that ended it, and its core file, for the errors of those that waited for it."""

from __future__ import annotations

import os
import resource
import signal
from typing import Final

#: Signals of a crash, and their cause for people. The lines of faulthandler on standard error have the stack.
CRASHES: Final = {
    signal.SIGSEGV: "an invalid address",
    signal.SIGBUS: "memory that does not exist",
    signal.SIGILL: "an invalid instruction",
    signal.SIGFPE: "an invalid arithmetic operation",
    signal.SIGABRT: "a failed check of a library",
}

#: The text of an ending that another process has caused, or the kernel when memory ran out.
KILLED: Final = signal.SIGKILL.name


def signal_of_zombie(pid: int) -> int:
    """Return the signal that ended a process which its parent has not waited for yet; 0 if there is none, or it is unknown.

    Not waitid, which is for children only: the parent of these processes is a fork server.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return int(fields[49]) & 0x7F if fields[0] == "Z" else 0
    except (OSError, IndexError, ValueError):
        return 0  # the parent was faster


def describe_signal(number: int, pid: int) -> str:
    """Return a signal as text, with the cause and the core file of a crash; empty for 0."""
    if not number:
        return ""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    cause = CRASHES.get(number)  # type: ignore[call-overload]
    return f"{name} ({cause}{_core_file(pid)})" if cause else name


def _core_file(pid: int) -> str:
    if not resource.getrlimit(resource.RLIMIT_CORE)[0]:
        return ""
    try:
        with open("/proc/sys/kernel/core_pattern", encoding="utf-8", errors="replace") as file:
            pattern = file.read().strip()
        with open("/proc/sys/kernel/core_uses_pid", encoding="ascii") as file:
            numbered = file.read().strip() != "0"
    except OSError:
        return ""
    if pattern.startswith("|"):
        return f"; its core was passed to {pattern[1:].split()[0]}"
    if "%p" not in pattern and numbered:
        pattern += ".%p"
    return f"; core file {os.path.join(os.getcwd(), pattern.replace('%p', str(pid)))}"
