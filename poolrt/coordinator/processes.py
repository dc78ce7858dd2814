"""The processes of a pool: started by fork servers, known by their pidfd, whose word about a death is certain.

A pidfd becomes readable when the last thread of a process has ended and its memory is gone: from then on it writes
nowhere. So a slot that it could write to is reused only after that. What hangs is killed: a process that stays stopped,
a fork server that answers no more.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from poolrt.workers.ipc.channel import Channel, ChannelClosed, MalformedMessage, pair
from poolrt.workers.ipc.protocol import Kind, check_message
from poolrt.workers.ipc.spawn import start_program

from .configuration import thread_variables
from .instructions import Role
from .watchdog import UnderWay, Watchdog

#: Seconds that everything gets to end by itself before it is killed.
GRACE_S: Final = 1.5
#: Seconds that those which were killed get to be gone, on a machine that is busy with other things.
DEATH_S: Final = 5.0
#: Seconds that the preloaded fork server, whose memory is large, is kept without creators.
PRELOADED_IDLE_S: Final = 30.0
#: Births that a server is asked for at a time: so few that both directions of its connection hold all that is said.
FORKS_IN_FLIGHT: Final = 32
#: Seconds that a process may be stopped, by SIGSTOP: longer than anybody who looks at it with a tool needs.
STOPPED_S: Final = 3.0
#: Seconds that a fork server may take for a fork, which is a matter of milliseconds.
FORK_S: Final = 15.0


@dataclass(slots=True, eq=False)
class _Child:
    role: str
    pid: int = 0
    pidfd: int = -1
    unwanted: bool = False


@dataclass(slots=True, eq=False)
class _ForkServer:
    """``number`` is the preloaded fork server's child number; 0 for the fork server of workers, which is always ready."""

    channel: Channel
    pid: int = 0
    number: int = 0
    ready: bool = True
    #: Children to ask for once it is ready and others are born.
    waiting: deque[int] = field(default_factory=deque)
    #: Children that were asked for and not born yet, in this order.
    expected: dict[int, None] = field(default_factory=dict)
    gone: bool = False


class Processes:
    """Starts and ends processes. ``watch(fd, action)`` calls ``action`` whenever ``fd`` is readable; ``unwatch(fd)`` stops it.

    ``joined(number, channel)`` is called with the connection to a new process, ``died(number)`` once it is certainly dead.
    ``numbers`` gives numbers that no process has had. A fork server may take ``start_s`` seconds to warm up.
    """

    def __init__(
        self,
        first: tuple[int, socket.socket],
        arena: int,
        options: dict[str, Any],
        start_s: float,
        numbers: Iterator[int],
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], None],
        joined: Callable[[int, Channel], None],
        died: Callable[[int], None],
    ) -> None:
        self._arena = arena
        self._options = options
        self._start_s = start_s
        self._numbers = numbers
        self._watch = watch
        self._unwatch = unwatch
        self._joined = joined
        self._died = died
        self._children: dict[int, _Child] = {}
        self._plain: _ForkServer | None = self._adopt(*first)
        self._preloaded: _ForkServer | None = None
        self._preloaded_idle_since = 0.0
        self._preloading_fails = False
        self._watchdog = Watchdog()

    def spawn(self, number: int, role: Role) -> None:
        """Start a process under a number. One that cannot be started is reported as dead."""
        self._children[number] = _Child(role.value)
        try:
            if role is Role.WORKER or self._preloading_fails:
                server = self._fork_server()
            else:
                server = self._preloaded or self._start_preloaded()
        except OSError as error:
            self._not_started(number, error)
        else:
            self._request(server, number)

    def kill(self, number: int, reason: str = "") -> None:
        """End a process by force and say why; one that is not born yet is ended at birth."""
        child = self._children.get(number)
        if child is None:
            return
        if reason:
            print(f"poolrt: {child.role} {child.pid or ''} is ended: {reason}", file=sys.stderr)
        child.unwanted = True
        if child.pidfd >= 0:
            _kill(child.pidfd)

    def tick(self, now: float) -> None:
        """Kill what is stopped or does not answer; let the preloaded fork server go when there have been no creators for long."""
        for item in self._watchdog.look(now, self._under_way()):
            print(f"poolrt: process {item.who} is ended: {item.what} for {item.limit_s:g} s", file=sys.stderr)
            self._kill_pid(item.who)
        preloaded = self._preloaded
        busy = preloaded is not None and (
            preloaded.waiting or any(c.role == Role.CREATOR.value for c in self._children.values())
        )
        if busy or preloaded is None:
            self._preloaded_idle_since = now
        elif now - self._preloaded_idle_since > PRELOADED_IDLE_S:
            self._lost(preloaded)

    def close(self) -> None:
        """End all processes and wait for their end; kill what does not end by itself."""
        if self._preloaded is not None:
            self._leave(self._preloaded)
        if self._plain is not None:
            self._leave(self._plain)
            _wait_for_end(self._plain.pid)
        # All that lived on have been killed with their fork server, and need but a core to end.
        until = time.monotonic() + DEATH_S
        for child in self._children.values():
            if child.pidfd >= 0:
                _wait_for_death(child.pidfd, until)
                os.close(child.pidfd)
        self._children.clear()

    def _adopt(self, pid: int, sock: socket.socket) -> _ForkServer:
        server = _ForkServer(Channel(sock, accepts_fds=True), pid)
        self._watch(server.channel.fileno(), lambda: self._on_readable(server))
        return server

    def _fork_server(self) -> _ForkServer:
        """Return the fork server of workers; where it has died, start another, as it is needed only now."""
        if self._plain is None:
            self._plain = self._adopt(*_start_fork_server())
        return self._plain

    def _start_preloaded(self) -> _ForkServer:
        ours, theirs = pair()
        preloaded = self._preloaded = _ForkServer(
            Channel(ours, accepts_fds=True), number=next(self._numbers), ready=False
        )
        self._children[preloaded.number] = _Child("preloaded")
        self._watch(preloaded.channel.fileno(), lambda: self._on_readable(preloaded))
        self._send_fork(self._fork_server(), preloaded.number, theirs)
        return preloaded

    def _request(self, server: _ForkServer, number: int) -> None:
        if server.gone:
            self._reap(number)
        else:
            server.waiting.append(number)
            self._ask(server)

    def _ask(self, server: _ForkServer) -> None:
        """Ask a fork server for as many of those who wait as it may be asked for."""
        while server.ready and not server.gone and server.waiting and len(server.expected) < FORKS_IN_FLIGHT:
            number = server.waiting.popleft()
            try:
                ours, theirs = pair()
            except OSError as error:
                self._not_started(number, error)
            else:
                self._joined(number, Channel(ours))
                self._send_fork(server, number, theirs)

    def _not_started(self, number: int, error: OSError) -> None:
        print(f"poolrt: no {self._children[number].role} can be started: {error}", file=sys.stderr)
        self._reap(number)

    def _send_fork(self, server: _ForkServer, number: int, theirs: socket.socket) -> None:
        role = self._children[number].role
        descriptors = (theirs.fileno(), self._arena) if role == Role.WORKER.value else (theirs.fileno(),)
        server.expected[number] = None
        environment = thread_variables(self._options["threads"] if role == Role.WORKER.value else 1)
        options = {**self._options, "environment": environment, "descriptors": len(descriptors)}
        with theirs:
            try:
                server.channel.send([Kind.FORK, number, role, options], descriptors)
                self._push(server)
            except ChannelClosed:
                pass  # its end is noticed by `_on_readable`, which reports those that were expected

    def _push(self, server: _ForkServer) -> None:
        """Wait until a fork server has taken what it was sent, so that the descriptors can be closed.

        It has read all but `FORKS_IN_FLIGHT` of it, which the connection holds; so one that lets this wait has stopped for good.
        """
        until = time.monotonic() + GRACE_S
        while server.channel.queued:
            if time.monotonic() > until:
                self._lost(server)
                return
            server.channel.wait(GRACE_S, to_receive=False, to_send=True)
            server.channel.flush()

    def _on_readable(self, server: _ForkServer) -> None:
        """Take a fork server's news."""
        try:
            while not server.gone and (message := server.channel.receive()) is not None:
                kind = check_message(message)
                if kind is Kind.READY:
                    self._on_preloaded(server, threads=message[2])
                elif kind is Kind.BROKEN:
                    self._on_preloaded(server, threads=0)
                elif kind is Kind.FORKED:
                    server.expected.pop(message[1], None)
                    self._on_forked(message[1], message[2], server.channel.take_fd())
                    self._ask(server)
                elif kind is Kind.FORK_FAILED:
                    server.expected.pop(message[1], None)
                    print(f"poolrt: {message[2]}", file=sys.stderr)
                    self._reap(message[1])
                    self._ask(server)
                else:
                    raise MalformedMessage(f"a fork server does not send {kind.name}")
        except (ChannelClosed, MalformedMessage):
            self._lost(server)

    def _on_forked(self, number: int, pid: int, pidfd: int) -> None:
        child = self._children.get(number)
        if child is None:
            os.close(pidfd)
            return
        child.pid, child.pidfd = pid, pidfd
        self._watch(pidfd, lambda: self._reap(number))
        if child.unwanted:
            _kill(pidfd)

    def _reap(self, number: int) -> None:
        child = self._children.pop(number, None)
        if child is None:
            return
        if child.pidfd >= 0:
            self._unwatch(child.pidfd)
            os.close(child.pidfd)
        if child.role != "preloaded":
            self._died(number)
        elif self._preloaded is not None and self._preloaded.number == number:
            self._lost(self._preloaded)

    def _on_preloaded(self, preloaded: _ForkServer, threads: int) -> None:
        """A fork server has come up with a number of threads; with none where it has no compiler, and is of no use.

        Creators that import the compiler themselves start later, but surely, and each can say what is wrong with it.
        """
        preloaded.ready = True
        if threads == 1:
            self._ask(preloaded)
            return
        self._preloading_fails = threads > 1  # forking it would risk a hang
        waiting = [*preloaded.waiting]
        preloaded.waiting.clear()
        self._lost(preloaded)
        for number in waiting:
            try:
                server = self._fork_server()
            except OSError as error:
                self._not_started(number, error)
            else:
                self._request(server, number)

    def _leave(self, server: _ForkServer) -> None:
        """Close the connection to a fork server, which ends it and its children."""
        if not server.gone:
            server.gone = True
            self._unwatch(server.channel.fileno())
            server.channel.close()

    def _lost(self, server: _ForkServer) -> None:
        """A fork server has gone, or is let go: end it, and with it its children, whose pidfds tell.

        Those that it had not borne yet are reported here.
        """
        if server.gone:
            return
        self._leave(server)
        if server is self._preloaded:
            self._preloaded = None
        elif server is self._plain:
            self._plain = None
            os.kill(server.pid, signal.SIGKILL)
            os.waitpid(server.pid, 0)
        for number in [*server.expected, *server.waiting]:
            self._reap(number)

    def _under_way(self) -> Iterator[UnderWay]:
        """Tell, by process id, who is stopped, and which fork server owes an answer."""
        for child in self._children.values():
            if child.pid and _is_stopped(child.pid):
                yield UnderWay(child.pid, "it was stopped", STOPPED_S)
        plain, preloaded = self._plain, self._preloaded
        if plain is not None and plain.expected and _is_stopped(plain.pid):
            yield UnderWay(plain.pid, "it was stopped", STOPPED_S)
        if plain is not None and plain.expected:
            yield UnderWay(plain.pid, f"fork request {next(iter(plain.expected))} timed out", FORK_S)
        pid = self._children[preloaded.number].pid if preloaded is not None else 0
        if preloaded is not None and pid and not preloaded.ready:
            yield UnderWay(pid, "preloading did not finish", self._start_s)
        elif preloaded is not None and pid and preloaded.expected:
            yield UnderWay(pid, f"fork request {next(iter(preloaded.expected))} timed out", FORK_S)

    def _kill_pid(self, pid: int) -> None:
        """End one of our processes by force: its end is reported by its pidfd, that of the fork server by its connection."""
        for child in self._children.values():
            if child.pid == pid and child.pidfd >= 0:
                _kill(child.pidfd)
                return
        if self._plain is not None and self._plain.pid == pid:
            os.kill(pid, signal.SIGKILL)


def _start_fork_server() -> tuple[int, socket.socket]:
    """Start a fork server as a new program: this process has threads by now, and must not be forked without an exec."""
    ours, theirs = pair()
    with theirs:
        try:
            pid = start_program("poolrt.workers.processes.fork_server", theirs, str(os.getpid()))
        except OSError:
            ours.close()
            raise
    return pid, ours


def _is_stopped(pid: int) -> bool:
    """Return whether a process has been stopped by a signal; one that a debugger holds is not meant."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False  # it has ended


def _kill(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended by itself


def _wait_for_death(pidfd: int, until: float) -> None:
    """Wait until a process that somebody else has to reap is dead, or for so long."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(max(0.0, until - time.monotonic()) * 1000)


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
