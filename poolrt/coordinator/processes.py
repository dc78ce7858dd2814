"""The processes of a pool: fork servers start them, and each is watched by its pidfd.

Guarantees: a process is reported as exited only when its pidfd is readable, which is after its last thread has ended
and its memory is gone. A slot that it could write to is reused only after that. A process that stays stopped and a
fork server that no longer answers are killed.
"""

from __future__ import annotations

import _socket
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any, Final

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.workers.engines.isa import LIMIT
from poolrt.workers.ipc.channel import Channel, ChannelClosed, MalformedMessage, pair
from poolrt.workers.ipc.protocol import Kind, check_message
from poolrt.workers.ipc.spawn import start_program

from .configuration import thread_variables
from .exits import CRASHES, describe_signal, signal_of_zombie
from .instructions import Role
from .stops import find_stop
from .watchdog import UnderWay, Watchdog

#: Seconds that processes may take to exit by themselves before they are killed.
GRACE_S: Final = 1.5
#: Seconds that killed processes may take to exit on a busy machine.
EXIT_S: Final = 5.0
#: Seconds between the end of a fork server's connection and its exit, on a busy machine.
LAST_S: Final = 0.05
#: Seconds that the preloaded fork server, whose memory is large, is kept without creators.
PRELOADED_IDLE_S: Final = 30.0
#: Fork requests in flight to one fork server: few enough that both directions of the connection hold their messages.
FORKS_IN_FLIGHT: Final = 32
#: Seconds that a process may be stopped, by SIGSTOP: longer than a tool that inspects it needs.
STOPPED_S: Final = 3.0
#: Seconds that a fork may take; milliseconds are usual.
FORK_S: Final = 15.0


@dataclass(slots=True, eq=False)
class _Child:
    role: str
    pid: int = 0
    pidfd: int = -1
    kill_on_fork: bool = False
    #: The fork server that forks it.
    server: _ForkServer | None = None


@dataclass(slots=True, eq=False)
class _ForkServer:
    """``number`` is the preloaded fork server's child number; 0 for the fork server of workers, which is always ready."""

    channel: Channel
    pid: int = 0
    number: int = 0
    ready: bool = True
    #: Children to request once the fork server is ready and has answered others.
    waiting: deque[int] = field(default_factory=deque)
    #: Children that were requested and are not forked yet, in this order.
    expected: dict[int, None] = field(default_factory=dict)
    gone: bool = False
    #: Whether it was killed because it did not answer.
    overdue: bool = False


class Processes:
    """Starts and ends processes. ``watch(fd, action)`` calls ``action`` whenever ``fd`` is readable; ``unwatch(fd)`` stops it.

    ``connected(number, channel)`` is called with the connection to a new process, ``exited(number)`` after its exit, and
    ``doomed(numbers)`` when processes exit, or are not forked, because their fork server has exited.
    ``numbers`` yields unused numbers. Preloading a fork server may take ``start_s`` seconds.
    """

    def __init__(
        self,
        first: tuple[int, _socket.socket],
        arena: int,
        options: dict[str, Any],
        start_s: float,
        numbers: Iterator[int],
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], None],
        connected: Callable[[int, Channel], None],
        exited: Callable[[int], None],
        doomed: Callable[[list[int]], None],
    ) -> None:
        self._arena = arena
        self._options = options
        self._start_s = start_s
        self._numbers = numbers
        self._watch = watch
        self._unwatch = unwatch
        self._connected = connected
        self._exited = exited
        self._doomed = doomed
        self._children: dict[int, _Child] = {}
        self._endings: dict[int, str] = {}
        self._failures: set[str] = set()
        self._plain: _ForkServer | None = self._adopt(*first)
        self._preloaded: _ForkServer | None = None
        self._preloaded_idle_since = 0.0
        self._preloading_fails = False
        self._watchdog = Watchdog()
        #: Whether the last tick has found processes that are stopped or do not answer.
        self._watched = False

    def spawn(self, number: int, role: Role, compiles: bool = True) -> None:
        """Start a process under a number, one that ``compiles`` with the compiler imported.

        One that cannot be started is reported as exited.
        """
        self._children[number] = _Child(role.value)
        try:
            if role is Role.WORKER or self._preloading_fails or not compiles:
                server = self._fork_server()
            else:
                server = self._preloaded or self._start_preloaded()
        except OSError as error:
            self._report_start_failure(number, error)
        else:
            self._request(server, number)

    def preload(self) -> None:
        """Start the fork server of creators, if there is none, before the first creator: importing the compiler takes 0.1 s."""
        if self._preloaded is None and not self._preloading_fails:
            with suppress(OSError):  # the first creator's start reports it
                self._start_preloaded()

    def ending(self, number: int) -> str:
        """Return the signal that has ended a process, as text, while its exit is reported; empty for none."""
        return self._endings.get(number, "")

    def kill(self, number: int, reason: str = "") -> None:
        """Kill a process and print the reason; one that is not forked yet is killed once it is."""
        child = self._children.get(number)
        if child is None:
            return
        if reason:
            print(f"poolrt: killing {child.role} {child.pid or '(not forked yet)'}: {reason}", file=sys.stderr)
        child.kill_on_fork = True
        if child.pidfd >= 0:
            _kill(child.pidfd)

    def tick(self, now: float) -> None:
        """Kill processes that are stopped or do not answer; end an idle preloaded fork server."""
        under_way = [*self._under_way()]
        self._watched = bool(under_way)
        for item in self._watchdog.check(now, under_way):
            print(f"poolrt: killing process {item.process}: {item.what} after {item.limit_s:g} s", file=sys.stderr)
            self._kill_pid(item.process)
        preloaded = self._preloaded
        busy = preloaded is not None and (
            preloaded.waiting or any(c.role == Role.CREATOR.value for c in self._children.values())
        )
        if busy or preloaded is None:
            self._preloaded_idle_since = now
        elif now - self._preloaded_idle_since > PRELOADED_IDLE_S:
            self._end(preloaded)

    @property
    def has_duties(self) -> bool:
        """Whether `tick` has anything to look at before the next event. Fork servers report that a process is stopped."""
        return self._watched or self._preloaded is not None or (self._plain is not None and bool(self._plain.expected))

    def close(self) -> None:
        """End all processes and wait for their exit; kill those that do not exit by themselves."""
        if self._preloaded is not None:
            self._disconnect(self._preloaded)
        if self._plain is not None:
            self._disconnect(self._plain)
            _wait_for_child(self._plain.pid)
        # The kernel has killed the remaining children with their fork server; they only need a core to exit.
        until = time.monotonic() + EXIT_S
        for child in self._children.values():
            if child.pidfd >= 0:
                _wait_for_exit(child.pidfd, until)
                os.close(child.pidfd)
        self._children.clear()

    def _adopt(self, pid: int, sock: _socket.socket) -> _ForkServer:
        server = _ForkServer(Channel(sock, accepts_fds=True), pid)
        self._watch(server.channel.fileno(), lambda: self._on_readable(server))
        return server

    def _fork_server(self) -> _ForkServer:
        """Return the fork server of workers; after its exit, start another one when it is needed."""
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
        self._children[number].server = server
        if server.gone:
            self._reap(number)
        else:
            server.waiting.append(number)
            self._request_waiting(server)

    def _request_waiting(self, server: _ForkServer) -> None:
        """Request waiting children from a fork server, up to the limit of requests in flight."""
        while server.ready and not server.gone and server.waiting and len(server.expected) < FORKS_IN_FLIGHT:
            number = server.waiting.popleft()
            try:
                ours, theirs = pair()
            except OSError as error:
                self._report_start_failure(number, error)
            else:
                self._connected(number, Channel(ours, relays=True))
                self._send_fork(server, number, theirs)

    def _report_start_failure(self, number: int, error: OSError) -> None:
        self._print_failure(f"no {self._children[number].role} can be started: {error}")
        self._reap(number)

    def _print_failure(self, text: str) -> None:
        """Print why a process could not be started, once until one could: the next attempts fail for the same reason."""
        if text not in self._failures:
            self._failures.add(text)
            print(f"poolrt: {text}", file=sys.stderr)

    def _send_fork(self, server: _ForkServer, number: int, theirs: _socket.socket) -> None:
        role = self._children[number].role
        descriptors = (theirs.fileno(), self._arena) if role == Role.WORKER.value else (theirs.fileno(),)
        server.expected[number] = None
        environment = thread_variables(self._options["threads"] if role == Role.WORKER.value else 1)
        environment[LIMIT] = self._options["max_cpu_isa"]
        options = {**self._options, "environment": environment, "descriptors": len(descriptors)}
        with closing(theirs):
            try:
                server.channel.send([Kind.FORK, number, role, options], descriptors)
                self._flush(server)
            except ChannelClosed:
                pass  # `_on_readable` notices this too, and reports the expected children

    def _flush(self, server: _ForkServer) -> None:
        """Wait until a fork server has received the queued messages, so that the descriptors can be closed.

        The connection holds `FORKS_IN_FLIGHT` requests, so a fork server that makes this wait has stopped for good.
        """
        until = time.monotonic() + GRACE_S
        while server.channel.queued:
            if time.monotonic() > until:
                self._end(server)
                return
            server.channel.wait(GRACE_S, to_receive=False, to_send=True)
            server.channel.flush()

    def _on_readable(self, server: _ForkServer) -> None:
        """Handle the messages of a fork server."""
        try:
            while not server.gone and (message := server.channel.receive()) is not None:
                kind = check_message(message)
                if kind is Kind.READY:
                    self._on_preloaded(server, threads=message[2])
                elif kind is Kind.BROKEN:
                    self._on_preloaded(server, threads=0)
                elif kind is Kind.FORKED:
                    # While the child is expected: without its descriptor, for which none may be free, it is ended and reaped.
                    pidfd = server.channel.take_fd()
                    server.expected.pop(message[1], None)
                    self._on_forked(message[1], message[2], pidfd)
                    self._request_waiting(server)
                elif kind is Kind.STOPPED:
                    self._watched = True  # the next tick looks at all processes
                elif kind is Kind.FORK_FAILED:
                    server.expected.pop(message[1], None)
                    self._print_failure(message[2])
                    self._reap(message[1])
                    self._request_waiting(server)
                else:
                    raise MalformedMessage(f"fork servers must not send {kind.name}")
        except (ChannelClosed, MalformedMessage):
            self._end(server)

    def _on_forked(self, number: int, pid: int, pidfd: int) -> None:
        child = self._children.get(number)
        if child is None:
            os.close(pidfd)
            return
        self._failures.clear()
        child.pid, child.pidfd = pid, pidfd
        self._watch(pidfd, lambda: self._on_exit(number))
        if child.kill_on_fork:
            _kill(pidfd)

    def _on_exit(self, number: int) -> None:
        """Handle the exit of a process. Fork servers that have exited with it are noticed first: none is asked for another."""
        child = self._children.get(number)
        if child is not None and (ended := signal_of_zombie(child.pid)):
            self._endings[number] = text = describe_signal(ended, child.pid)
            if ended in CRASHES:
                print(f"poolrt: {child.role} {child.pid} was ended by {text}", file=sys.stderr)
        for server in (self._plain, self._preloaded):
            if server is not None:
                self._on_readable(server)
        self._reap(number)
        self._endings.pop(number, None)

    def _reap(self, number: int) -> None:
        child = self._children.pop(number, None)
        if child is None:
            return
        if child.pidfd >= 0:
            self._unwatch(child.pidfd)
            os.close(child.pidfd)
        if child.role != "preloaded":
            self._exited(number)
        elif self._preloaded is not None and self._preloaded.number == number:
            self._end(self._preloaded)

    def _on_preloaded(self, preloaded: _ForkServer, threads: int) -> None:
        """Use a preloaded fork server with one thread; end one with more, or with none because its compiler is broken.

        The fork server of workers then starts the creators. They start later, and report a broken compiler themselves.
        """
        preloaded.ready = True
        if threads == 1:
            self._request_waiting(preloaded)
            return
        self._preloading_fails = threads > 1  # forking it would risk a hang
        waiting = [*preloaded.waiting]
        preloaded.waiting.clear()
        for number in waiting:
            self._children[number].server = None
        self._end(preloaded)
        for number in waiting:
            try:
                server = self._fork_server()
            except OSError as error:
                self._report_start_failure(number, error)
            else:
                self._request(server, number)

    def _disconnect(self, server: _ForkServer) -> None:
        """Close the connection to a fork server, which makes it end its children and exit."""
        if not server.gone:
            server.gone = True
            self._unwatch(server.channel.fileno())
            server.channel.close()

    def _end(self, server: _ForkServer) -> None:
        """End a fork server and its children. Pidfds report their exits; children not forked yet are reported here."""
        if server.gone:
            return
        ending = "" if server.overdue else self._ending_of(server)
        self._disconnect(server)
        if server is self._preloaded:
            self._preloaded = None
        elif server is self._plain:
            self._plain = None
            os.kill(server.pid, signal.SIGKILL)
            os.waitpid(server.pid, 0)
        unforked = [*server.expected, *server.waiting]
        lost = [number for number, child in self._children.items() if child.server is server]
        # One that does not answer may never fork anything: that counts as failed starts.
        self._doomed([number for number in lost if not server.overdue or number not in unforked])
        for number in unforked:
            # They end as their fork server did, unless it was killed here.
            self._endings[number] = ending
            self._reap(number)
            del self._endings[number]

    def _ending_of(self, server: _ForkServer) -> str:
        """Return the signal that ends a fork server, as text. Its connection closes some microseconds before it has exited."""
        if known := self._endings.get(server.number):
            return known
        child = self._children.get(server.number)
        pid = server.pid or (child.pid if child is not None else 0)
        try:
            pidfd = os.pidfd_open(pid) if pid else -1
        except OSError:
            return ""  # it has gone, or no descriptor is free
        if pidfd < 0:
            return ""
        try:
            _wait_for_exit(pidfd, time.monotonic() + LAST_S)
            return describe_signal(signal_of_zombie(pid), pid)
        finally:
            os.close(pidfd)

    def _under_way(self) -> Iterator[UnderWay]:
        """Yield the process ids of stopped processes and of fork servers that have not answered."""
        for child in self._children.values():
            if child.pid and (stop := find_stop(child.pid)):
                yield UnderWay(child.pid, stop, STOPPED_S)
        plain, preloaded = self._plain, self._preloaded
        if plain is not None and plain.expected and (stop := find_stop(plain.pid)):
            yield UnderWay(plain.pid, stop, STOPPED_S)
        if plain is not None and plain.expected:
            yield UnderWay(plain.pid, f"fork request {next(iter(plain.expected))} timed out", FORK_S)
        pid = self._children[preloaded.number].pid if preloaded is not None else 0
        if preloaded is not None and pid and not preloaded.ready:
            yield UnderWay(pid, "preloading did not finish", self._start_s)
        elif preloaded is not None and pid and preloaded.expected:
            yield UnderWay(pid, f"fork request {next(iter(preloaded.expected))} timed out", FORK_S)

    def _kill_pid(self, pid: int) -> None:
        """Kill a process. Its pidfd reports the exit; for the fork server of workers its connection does."""
        for number, child in self._children.items():
            if child.pid == pid and child.pidfd >= 0:
                if self._preloaded is not None and self._preloaded.number == number:
                    self._preloaded.overdue = True
                _kill(child.pidfd)
                return
        if self._plain is not None and self._plain.pid == pid:
            self._plain.overdue = True
            os.kill(pid, signal.SIGKILL)


def _start_fork_server() -> tuple[int, _socket.socket]:
    """Start a fork server as a new program, because a process with threads must not fork without an exec."""
    ours, theirs = pair()
    with closing(theirs):
        try:
            pid = start_program("poolrt.workers.processes.fork_server", theirs, str(os.getpid()))
        except OSError:
            ours.close()
            raise
    return pid, ours


def _kill(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has exited


def _wait_for_exit(pidfd: int, until: float) -> None:
    """Wait until a process that is not a child has exited, or until a point of time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(max(0.0, until - time.monotonic()) * 1000)


def _wait_for_child(pid: int) -> None:
    """Wait until a child has exited; kill it after `GRACE_S`."""
    until = time.monotonic() + GRACE_S
    try:
        while os.waitpid(pid, os.WNOHANG)[0] != pid:
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            time.sleep(0.002)
    except ChildProcessError:
        pass  # another part of the process has waited for it
