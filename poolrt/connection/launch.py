"""Start a coordinator for this process, and end it.

Imports almost nothing: the coordinator starts while this process imports the rest of the client.
"""

from __future__ import annotations

import _socket
import os
import sys
import time

from poolrt.workers.ipc.spawn import module_path, spawn_actions

#: Seconds that a coordinator may take to end its processes and exit after its client has disconnected.
_END_S = 3.0
#: Seconds from the end of a coordinator's connection to its exit, if a signal has ended it: a large arena takes a while.
_ENDING_S = 0.5
#: Not ``-m``, which imports `runpy` first: 3 ms.
_PROGRAM = "from poolrt.coordinator.program import main; main(3)"


class Coordinator:
    """A coordinator process that this process has started; ``pid`` is 0 once it has exited."""

    __slots__ = ("_owner", "pid")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._owner = os.getpid()

    def ending(self) -> str:
        """Return the signal that has ended it and what is known of its cause; empty if it has exited by itself or still runs."""
        pid = self.pid  # read once: another thread may be in `end`
        if not pid or self._owner != os.getpid():
            return ""
        until = time.monotonic() + _ENDING_S
        try:
            while (found := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is None:
                if time.monotonic() > until:
                    return ""
                time.sleep(0.005)
        except ChildProcessError:
            return ""  # another part of this process has waited for all its children
        if found.si_code not in (os.CLD_KILLED, os.CLD_DUMPED):
            return ""
        from poolrt.coordinator.exits import CRASHES, describe_signal

        text = f"ended by {describe_signal(found.si_status, pid)}"
        if found.si_status in CRASHES:
            return f"{text}; its lines on standard error have the stack"
        return f"{text}, which another process has sent, or the kernel when memory ran out"

    def end(self) -> None:
        """Wait until it exits, which closing the connection makes it do; kill it if it takes too long."""
        if not self.pid or self._owner != os.getpid():
            return  # it has exited, or this process is a fork of the one that started it
        import select
        import signal

        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self.pid = 0  # another part of this process has waited for all its children
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
        except BaseException:
            # An interrupt: the kernel ends the coordinator's processes with it.
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass  # it came after the line that waits, or as above
            raise
        finally:
            self.pid = 0
            os.close(pidfd)


def start_coordinator() -> tuple[_socket.socket, Coordinator]:
    """Start a coordinator and return the socket to it. It starts up while the caller goes on.

    It has its own session, so that an interruption from the terminal reaches this process only, which then ends the
    coordinator. Raises OSError if it cannot be started.
    """
    if not sys.executable:
        raise FileNotFoundError("cannot start a coordinator: sys.executable is empty")
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    environment = {**os.environ, **module_path()}
    command = [sys.executable, "-P", "-c", _PROGRAM]
    try:
        pid = os.posix_spawn(sys.executable, command, environment, file_actions=spawn_actions(theirs), setsid=True)
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return ours, Coordinator(pid)
