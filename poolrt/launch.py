"""Start a coordinator for this process, and see to it that it ends.

Imports next to nothing: the coordinator is started before the rest of the client is imported, and comes up beside that.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys

from poolrt.workers.ipc.spawn import module_path, spawn_actions

#: Seconds that a coordinator gets to end its processes and itself once its client has gone.
_END_S = 3.0


class Coordinator:
    """A coordinator process that this process has started; ``pid`` is 0 once it has ended."""

    __slots__ = ("_owner", "pid")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._owner = os.getpid()

    def end(self) -> None:
        """Wait for its end, which follows from closing the connection; kill it where it takes too long."""
        if not self.pid or self._owner != os.getpid():
            return  # it has ended, or it is the parent's and this process a fork of that
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self.pid = 0  # somebody else has waited for all children of this process
            return
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            if not poll.poll(_END_S * 1000):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                poll.poll(_END_S * 1000)
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass  # as above
        finally:
            self.pid = 0
            os.close(pidfd)


def start_coordinator() -> tuple[socket.socket, Coordinator]:
    """Start a coordinator and return the socket to it. It imports what it needs while the caller goes on.

    It has a session of its own, so that an interruption from the terminal reaches this process only, which then ends
    it in order. Raises OSError where it cannot be started.
    """
    if not sys.executable:
        raise FileNotFoundError("this Python does not know its own executable, which a coordinator is started with")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, **module_path()}
    command = [sys.executable, "-P", "-m", "poolrt.coordinator", "3"]
    try:
        pid = os.posix_spawn(sys.executable, command, environment, file_actions=spawn_actions(theirs), setsid=True)
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return ours, Coordinator(pid)
