"""The most memory that a process has had."""

from __future__ import annotations


def peak_resident() -> int:
    """Return the most resident bytes that this process has had since its program began.

    `resource.getrusage` also counts what its parent had when it started this process.
    """
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:"))
