"""The processes of a pool: started by nurseries, known by their pidfd, whose word about a death is certain.

A pidfd becomes readable when the last thread of a process has ended and its memory is gone: from then on it writes
nowhere. So a slot that it could write to is reused only after that.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from poolrt.workers.channel import Channel, ChannelClosed, MalformedMessage, pair
from poolrt.workers.protocol import Kind, checked

from .configuration import thread_variables
from .instructions import Role

#: Seconds that everything gets to end by itself before it is killed.
GRACE_S: Final = 1.5
#: Seconds that the warm nursery, whose memory is large, is kept when there are no creators.
WARM_IDLE_S: Final = 30.0
#: Births that a nursery is asked for at a time: so few that both directions of its connection hold all that is said.
BIRTHS: Final = 32
#: Number of the warm nursery among the processes; the state machine never gives it.
WARM: Final = 0


@dataclass(slots=True, eq=False)
class _Child:
    pid: int = 0
    pidfd: int = -1
    role: str = ""


@dataclass(slots=True, eq=False)
class _Nursery:
    channel: Channel
    pid: int
    #: Children that were asked for and not born yet.
    expected: dict[int, str] = field(default_factory=dict)
    #: Children to ask for when others are born: number, role, their end of the connection.
    waiting: deque[tuple[int, str, socket.socket]] = field(default_factory=deque)
    gone: bool = False

    @property
    def unborn(self) -> list[int]:
        """Children that are not born yet."""
        return [*self.expected, *(number for number, _, _ in self.waiting)]


class Processes:
    """Starts and ends processes. ``watch(fd, action)`` calls ``action`` whenever ``fd`` is readable; ``unwatch(fd)`` stops it.

    ``joined(number, channel)`` is called with the connection to a new process, ``died(number)`` once it is certainly dead.
    """

    def __init__(
        self,
        first: tuple[int, socket.socket],
        arena: int,
        options: dict[str, Any],
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], None],
        joined: Callable[[int, Channel], None],
        died: Callable[[int], None],
    ) -> None:
        self._arena = arena
        self._options = options
        self._watch = watch
        self._unwatch = unwatch
        self._joined = joined
        self._died = died
        self._children: dict[int, _Child] = {}
        self._plain: _Nursery | None = self._adopt(*first)
        self._warm: _Nursery | None = None
        self._warm_ready = False
        self._warm_waiting: list[int] = []
        self._warm_idle_since = 0.0
        self._warm_refused = False

    def spawn(self, number: int, role: Role) -> None:
        """Start a process under a number."""
        self._children[number] = _Child(role=role.value)
        if role is Role.WORKER or self._warm_refused:
            self._bear(self._nursery(), number, role.value)
            return
        if self._warm is None:
            ours, theirs = pair()
            self._warm = _Nursery(Channel(ours, accepts_fds=True), 0)
            self._warm_ready = False
            self._children[WARM] = _Child(role="warm")
            self._send_bear(self._nursery(), WARM, "warm", theirs)
            warm = self._warm
            self._watch(warm.channel.fileno(), lambda: self._hear(warm))
        if self._warm_ready:
            self._bear(self._warm, number, role.value)
        else:
            self._warm_waiting.append(number)

    def kill(self, number: int) -> None:
        """End a process by force; one that is not born yet is ended at birth."""
        child = self._children.get(number)
        if child is None:
            return
        if child.pidfd < 0:
            child.role = ""
        else:
            _kill(child.pidfd)

    def tick(self, now: float) -> None:
        """Let the warm nursery go when there have been no creators for long."""
        busy = self._warm_waiting or any(c.role == Role.CREATOR.value for c in self._children.values())
        if busy or self._warm is None:
            self._warm_idle_since = now
        elif now - self._warm_idle_since > WARM_IDLE_S:
            self._close_warm()

    def close(self) -> None:
        """End all processes and wait for their end; kill what does not end by itself."""
        self._close_warm()
        if self._plain is not None:
            self._leave(self._plain)
            _wait_for_end(self._plain.pid)
        for child in self._children.values():
            if child.pidfd >= 0:
                os.close(child.pidfd)
        self._children.clear()

    def _adopt(self, pid: int, sock: socket.socket) -> _Nursery:
        nursery = _Nursery(Channel(sock, accepts_fds=True), pid)
        self._watch(nursery.channel.fileno(), lambda: self._hear(nursery))
        return nursery

    def _nursery(self) -> _Nursery:
        """Return the nursery of workers; where it has died, start another, as it is needed only now."""
        if self._plain is None:
            self._plain = self._adopt(*_start_anew())
        return self._plain

    def _bear(self, nursery: _Nursery, number: int, role: str) -> None:
        ours, theirs = pair()
        if len(nursery.expected) < BIRTHS:
            self._send_bear(nursery, number, role, theirs)
        else:
            nursery.waiting.append((number, role, theirs))
        self._joined(number, Channel(ours))

    def _send_bear(self, nursery: _Nursery, number: int, role: str, theirs: socket.socket) -> None:
        descriptors = (theirs.fileno(), self._arena) if role == Role.WORKER.value else (theirs.fileno(),)
        nursery.expected[number] = role
        environment = thread_variables(self._options["threads"] if role == Role.WORKER.value else 1)
        options = {**self._options, "environment": environment, "descriptors": len(descriptors)}
        try:
            nursery.channel.send([Kind.BEAR, number, role, options], descriptors)
            while nursery.channel.queued:
                # It has read all but `BIRTHS` of what it was sent, so this wait, which is for the descriptors, is short.
                nursery.channel.wait(None, to_send=True)
                nursery.channel.flush()
        except ChannelClosed:
            pass  # its end is noticed by `_hear`, which reports those that were expected
        theirs.close()

    def _hear(self, nursery: _Nursery) -> None:
        """Take a nursery's news."""
        try:
            while not nursery.gone and (message := nursery.channel.receive()) is not None:
                kind = checked(message)
                if kind is Kind.READY:
                    self._warmed(nursery, threads=message[2])
                elif kind is Kind.BORN:
                    self._answered(nursery, message[1])
                    self._born(message[1], message[2], nursery.channel.take_fd())
                elif kind is Kind.BARREN:
                    self._answered(nursery, message[1])
                    print(f"poolrt: {message[2]}", file=sys.stderr)
                    self._bury(message[1])
                else:
                    raise MalformedMessage(f"a nursery does not send {kind.name}")
        except (ChannelClosed, MalformedMessage):
            self._lost(nursery)

    def _answered(self, nursery: _Nursery, number: int) -> None:
        nursery.expected.pop(number, None)
        if nursery.waiting and len(nursery.expected) < BIRTHS:
            self._send_bear(nursery, *nursery.waiting.popleft())

    def _born(self, number: int, pid: int, pidfd: int) -> None:
        child = self._children.get(number)
        if child is None:
            os.close(pidfd)
            return
        child.pid, child.pidfd = pid, pidfd
        self._watch(pidfd, lambda: self._bury(number))
        if not child.role:
            _kill(pidfd)

    def _bury(self, number: int) -> None:
        child = self._children.pop(number, None)
        if child is None:
            return
        if child.pidfd >= 0:
            self._unwatch(child.pidfd)
            os.close(child.pidfd)
        if number == WARM:
            self._close_warm()
        else:
            self._died(number)

    def _warmed(self, nursery: _Nursery, threads: int) -> None:
        waiting, self._warm_waiting = self._warm_waiting, []
        self._warm_ready = True
        if threads != 1:
            # Forking it would risk a hang; creators that import the compiler themselves start later, but surely.
            self._warm_refused = True
            self._close_warm()
            nursery = self._nursery()
        for number in waiting:
            self._bear(nursery, number, Role.CREATOR.value)

    def _close_warm(self) -> None:
        warm, self._warm = self._warm, None
        if warm is None:
            return
        self._leave(warm)
        waiting, self._warm_waiting = self._warm_waiting, []
        for number in [*warm.unborn, *waiting]:
            self._bury(number)

    def _leave(self, nursery: _Nursery) -> None:
        """Close the connection to a nursery, which ends it and its children."""
        nursery.gone = True
        self._unwatch(nursery.channel.fileno())
        nursery.channel.close()
        for _, _, theirs in nursery.waiting:
            theirs.close()

    def _lost(self, nursery: _Nursery) -> None:
        """A nursery has gone. The kernel kills its children, whose pidfds tell; those it had not borne yet are reported here."""
        if nursery is self._warm:
            self._close_warm()
            return
        self._leave(nursery)
        self._plain = None
        os.kill(nursery.pid, signal.SIGKILL)
        os.waitpid(nursery.pid, 0)
        for number in nursery.unborn:
            self._bury(number)


def _start_anew() -> tuple[int, socket.socket]:
    """Start a nursery as a new program: this process has threads by now, and must not be forked without an exec."""
    ours, theirs = pair()
    command = [sys.executable, "-P", "-m", "poolrt.workers.nursery", "3", str(os.getpid())]
    actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 3)]
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
    theirs.close()
    return pid, ours


def _kill(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended by itself


def _wait_for_end(pid: int) -> None:
    """Wait until a child has ended; kill it where it takes too long."""
    until = time.monotonic() + GRACE_S
    try:
        while os.waitpid(pid, os.WNOHANG)[0] != pid:
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            time.sleep(0.002)
    except ChildProcessError:
        pass  # it is gone already
