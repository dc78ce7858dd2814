"""What can fail while a coordinator starts: its memory, and the report of a failure to the client that waits for it."""

from __future__ import annotations

import errno
import mmap
import os
import resource
from typing import Final

from poolrt.errors import CoordinatorLoss, PoolClosed
from poolrt.memory.arena import make_arena
from poolrt.workers.ipc.channel import Channel, ChannelError
from poolrt.workers.ipc.protocol import Kind

#: Seconds that a client may take to read why its coordinator could not start.
_REPORT_S: Final = 5.0
#: Limit of a process -> its name for people, and the shell's option to change it.
_LIMITS: Final = {
    resource.RLIMIT_AS: "the limit of address space (ulimit -v)",
    resource.RLIMIT_FSIZE: "the limit of file sizes (ulimit -f)",
}


def open_arena(nbytes: int) -> tuple[int, mmap.mmap]:
    """Make an arena and map it; return its descriptor and the mapping. Raises CoordinatorLoss if the system refuses."""
    fd = -1
    try:
        fd = make_arena(nbytes)
        return fd, mmap.mmap(fd, 0, flags=mmap.MAP_SHARED)
    except (OSError, OverflowError, ValueError, MemoryError) as error:
        if fd >= 0:
            os.close(fd)
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise _describe(error) from error
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CoordinatorLoss(
            f"the coordinator could not start: {nbytes} bytes of shared memory are refused: {reason}{_limits()}; "
            "lower the setting arena_bytes (POOLRT_ARENA_BYTES)"
        ) from error


def _limits() -> str:
    """Return the limits of this process that shared memory is subject to, for a message."""
    found = []
    for limit, name in _LIMITS.items():
        value = resource.getrlimit(limit)[0]
        if value != resource.RLIM_INFINITY:
            found.append(f"{name} is {value} bytes")
    return f" ({', '.join(found)})" if found else ""


def report_failure(channel: Channel, error: Exception) -> None:
    """Send a client the reason why its coordinator could not start, and wait until the client has disconnected."""
    known = error if isinstance(error, PoolClosed) else _describe(error)
    try:
        channel.send([Kind.FAILED, 0, known.to_wire()])
        # Data that are not read would make the kernel discard the report.
        while channel.wait(_REPORT_S):
            channel.receive()
    except ChannelError:
        pass  # the client has disconnected


def _describe(error: Exception) -> CoordinatorLoss:
    reason = str(error) or type(error).__name__
    remedy = "processes, threads, open files or memory of this user are at their limit: see ulimit -a"
    if not isinstance(error, OSError | MemoryError | RuntimeError):
        reason, remedy = f"{type(error).__name__}: {reason}", "the installation may be damaged: see poolrt doctor"
    return CoordinatorLoss(f"the coordinator could not start: {reason}; {remedy}")
