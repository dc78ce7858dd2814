"""The coordinator's loop: one epoll loop that passes events to the state machine and carries out its instructions.

Not asyncio: a round trip through this loop costs about half of one through a protocol there, and its imports would
double the coordinator's start.
"""

from __future__ import annotations

import _socket
import errno
import gc
import itertools
import math
import mmap
import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from poolrt.cachestore.peer import credentials
from poolrt.workers.ipc.bounded_decoding import Payload
from poolrt.workers.ipc.channel import Channel, ChannelClosed, ChannelError
from poolrt.workers.ipc.protocol import VERSION, Kind, check_message, limit_of
from poolrt.workers.processes.allocator import use_one_heap

from .background import PRELOAD, BackgroundThread
from .call_ring_memory import CallRingMemory
from .configuration import Configuration
from .instructions import (
    AttachCalls,
    AttachRing,
    CloseFiles,
    HangUp,
    Instruction,
    Kill,
    Lower,
    MakeGate,
    Send,
    Slow,
    Spawn,
    TrimMemory,
)
from .log_lines import LogLines
from .pacing import Pacing
from .peers import STRANGER_LIMIT, UNFINISHED_BYTES, UNFINISHED_S, Peer, find_greedy, open_pidfd
from .processes import Processes
from .ring import Ring
from .start import open_arena
from .state import State
from .timed_duties import has_duties, note_time
from .watchdog import Limits

if TYPE_CHECKING:
    from .listener import Listener

#: Seconds between ticks, and between looks at rings while there is nothing else to look at.
TICK_S: Final = 1.0
REST_S: Final = 10.0
#: Seconds after which the background thread hands the interpreter to the loop, which waits for it several times a run.
SWITCH_S: Final = 0.00001
#: Clients at a time; each takes two file descriptors, of which a process has 1024 by default.
CLIENTS_LIMIT: Final = 256
#: Seconds that a connected client may take to send HELLO.
HELLO_S: Final = 5.0
#: Times that freed memory is returned to the system after long messages, one a second: workers receive some a while later.
TRIMS: Final = 3
#: Seconds without a long message before that: it takes some milliseconds, which runs wait.
TRIM_AFTER_S: Final = 1.0
#: Seconds between looks at rings: clients that use them are active, and send no messages.
LOOK_S: Final = 0.05
#: Why a connection cannot be accepted now, though it may be later.
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: Bytes of free slots that stay resident; more is returned to the system while nothing runs.
RESIDENT: Final = 256 * 1024 * 1024


class Loop:
    """Runs a coordinator until its last client disconnects or, with a ``listener``, until `stop`."""

    def __init__(
        self, configuration: Configuration, fork_server: tuple[int, _socket.socket], listener: Listener | None = None
    ) -> None:
        self._listener = listener
        self._lines = LogLines(sys.stderr)
        self._description = {name: getattr(configuration, name) for name in ("workers", "threads", "engine")}
        self._epoll = select.epoll()
        self._actions: dict[int, Callable[[], object]] = {}
        self._peers: dict[int, Peer] = {}
        self._numbers = itertools.count(1)
        self._instructions: deque[Instruction] = deque()
        self._performing = False
        self._closings: deque[tuple[int, str]] = deque()
        self._unwatched: set[int] = set()
        self._pacing = Pacing(self._peers, self._update_events)
        self._looked = 0.0
        self._ring_memory = CallRingMemory(self._peers, self._send)
        self._stopping = False
        #: Whether connections are accepted; not between a shortage of descriptors and the next tick.
        self._listens = True
        self._trims_due, self._trims_from = 0, 0.0
        self._arena_fd, self._arena = open_arena(configuration.arena_bytes)
        self._processes = Processes(
            fork_server,
            self._arena_fd,
            {
                "threads": configuration.threads,
                "store": configuration.store,
                "verbose": configuration.verbose,
                "constant_files": configuration.constant_files,
                "spin_us": configuration.spin_us,
                "max_cpu_isa": configuration.max_cpu_isa,
            },
            configuration.start_timeout_s,
            self._numbers,
            self._watch,
            self._unwatch,
            self._on_process_connected,
            self._on_process_exited,
            lambda numbers: self.state.on_processes_doomed(numbers),
        )
        self.state = State(
            self._numbers,
            arena_bytes=len(self._arena),
            workers=configuration.workers,
            creators=configuration.creators,
            retries=configuration.retries,
            capacity=configuration.capacity,
            functions=configuration.functions,
            max_tasks_per_child=configuration.max_tasks_per_child,
            process=os.getpid(),
            shares_constants=bool(shared := configuration.constant_files),
            writes_constants=bool(shared) and not shared["read_only"],
            limits=Limits(configuration.start_timeout_s, configuration.run_timeout_s, configuration.creation_limit_s),
        )
        self._perform(self.state.start())
        use_one_heap()
        self._background = BackgroundThread(
            configuration.store,
            configuration.max_cpu_isa,
            configuration.threads,
            configuration.verbose,
            self._pacing.is_beside_others,
            configuration.functions,
            configuration.constant_files,
        )
        self._watch(self._background.fileno(), self._take_outcomes)
        if listener is not None:
            self._watch(listener.fileno(), self._accept)

    def add_client(self, sock: _socket.socket) -> None:
        """Add a connected client."""
        channel = Channel(sock, limit=STRANGER_LIMIT, relays=True, limit_of=limit_of)
        peer = self._add_peer(next(self._numbers), channel, client=True)
        peer.pid = credentials(sock)[0]
        peer.pidfd = open_pidfd(peer.pid)
        if peer.pidfd >= 0:
            self._watch(peer.pidfd, lambda: self._closings.append((peer.number, "")))
        self._note_active_clients(time.monotonic())
        self._pacing.on_connected(peer)

    def run(self) -> None:
        """Serve until there is no client left, or until `stop`; then end every process."""
        gc.freeze()  # objects of the start-up are never freed
        gc.enable()
        sys.setswitchinterval(SWITCH_S)
        try:
            next_tick = time.monotonic() + TICK_S
            note_time(self.state, time.monotonic())
            eventful = True
            while not self._stopping:
                until = self._pacing.next_time(next_tick)
                events = self._epoll.poll(None if until == math.inf else max(0.0, until - time.monotonic()))
                if events:
                    eventful = True
                    if next_tick > (now := time.monotonic()) + TICK_S:
                        next_tick = now + TICK_S
                        note_time(self.state, now)
                self._unwatched.clear()
                for fd, _ in events:
                    # A descriptor closed a moment ago may have been reused by now; epoll reports the new one again.
                    if fd in self._actions and fd not in self._unwatched:
                        self._actions[fd]()
                while self._closings:
                    self._disconnect(*self._closings.popleft())
                now = time.monotonic()
                self._pacing.end_pauses(now)
                if now >= next_tick:
                    self._tick(now)
                    # A tick follows each event, for what it leaves to be done.
                    next_tick = now + (TICK_S if eventful or self._has_duties() else self._rest_s())
                    eventful = False
        finally:
            self._close()

    def stop(self) -> None:
        """Make `run` return after the current event. Signal handlers may call it, also repeatedly."""
        if not self._stopping:
            self._stopping = True
            self._background.wake()

    def _perform(self, instructions: list[Instruction]) -> None:
        """Carry out instructions in the order of the events that led to them, also when one causes another event."""
        self._instructions.extend(instructions)
        if self._performing:
            return
        self._performing = True
        try:
            while self._instructions:
                step = self._instructions.popleft()
                if isinstance(step, Send):
                    self._send(step.peer, step.message)
                elif isinstance(step, Spawn):
                    self._processes.spawn(step.peer, step.role, step.compiles)
                elif isinstance(step, Kill):
                    self._processes.kill(step.peer, step.reason)
                elif isinstance(step, HangUp):
                    self._closings.append((step.peer, step.reason))
                elif isinstance(step, Slow):
                    self._pacing.on_message_in_vain(step.client)
                elif isinstance(step, CloseFiles):
                    for descriptor in step.descriptors:
                        os.close(descriptor)
                elif isinstance(step, AttachRing):
                    self._attach_ring(step.ring)
                elif isinstance(step, AttachCalls | MakeGate):
                    self._attach_calls(step)
                elif isinstance(step, Lower):
                    client = self._peers.get(step.client)
                    self._background.submit(step, client.owner if client else (0, 0))
                else:
                    self._background.submit(step)
        finally:
            self._performing = False

    def _send(self, number: int, message: list[Any], fds: tuple[int, ...] = ()) -> None:
        peer = self._peers.get(number)
        if peer is None:
            return
        if message[0] is Kind.TEXT:
            bounded = peer.bound_text(message)
            if bounded is None:
                return
            message = bounded
        try:
            peer.channel.send(message, fds)
        except ChannelClosed:
            self._closings.append((number, ""))
        except (ChannelError, ValueError, OverflowError) as error:  # the peer does not read, or the message is too long
            self._closings.append((number, str(error)))
        if peer.channel.queued:
            self._pacing.on_part_sent(peer)
        self._update_events(peer)

    def _attach_ring(self, ring: Ring) -> None:
        try:
            self._ring_memory.attach(ring)
        except OSError as error:
            self._lines.print("no shared memory for runs", str(error), time.monotonic())
            self._instructions.extend(self.state.on_ring_failed(ring.worker, ring.number))

    def _attach_calls(self, step: AttachCalls | MakeGate) -> None:
        """Make a ring of calls or a gate; without either, functions are called by messages."""
        calls = self.state.worker_set.calls
        try:
            if isinstance(step, MakeGate):
                calls.note_gate(step.worker, self._ring_memory.make_gate(step.worker))
            elif calls.has_gate(step.ring.worker):
                self._ring_memory.attach_calls(step.ring)
            else:
                self._instructions.extend(self.state.on_calls_failed(step.ring))
        except OSError as error:
            self._lines.print("no shared memory for calls of functions", str(error), time.monotonic())
            if isinstance(step, AttachCalls):
                self._instructions.extend(self.state.on_calls_failed(step.ring))

    def _note_active_clients(self, now: float) -> None:
        """Note which clients use their rings."""
        self._looked = now
        for number in self.state.worker_set.find_active():
            if number in self._peers:
                self._pacing.note_active(self._peers[number], now)

    def _update_events(self, peer: Peer) -> None:
        events = peer.wanted_events()
        if events != peer.events:
            peer.events = events
            self._epoll.modify(peer.fd, events)

    def _on_readable(self, peer: Peer) -> bool:
        """Handle one message of a peer; return whether there may be more."""
        channel = peer.channel
        if peer.client and (now := time.monotonic()) - self._looked > LOOK_S:
            self._note_active_clients(now)
        try:
            if channel.queued and not peer.unsent:
                if not channel.flush():
                    self._pacing.on_part_sent(peer)
                self._update_events(peer)
            # One message at a time: epoll reports the rest again, at the cost of a receive that finds nothing.
            message = channel.receive()
            if message is None:
                if channel.unfinished and peer.client:
                    self._bound_unfinished(peer)
                elif channel.unfinished:
                    self._pacing.on_part(peer)
                return channel.has_more
            kind = check_message(message)
            if type(message[-1]) is Payload:
                self._note_long_message()
            if not peer.client:
                self._perform(self.state.on_process_message(peer.number, kind, message))
                return True
            begin = 0.0 if kind is Kind.RUN else time.thread_time()  # the clock takes half a microsecond
            if peer.known and kind is not Kind.STOP:
                self._perform(self.state.on_client_message(peer.number, kind, message))
            else:
                self._handle_greeting(peer, kind, message)
            self._pacing.on_message(peer, kind, time.thread_time() - begin if begin else 0.0)
        except ChannelClosed:
            self._closings.append((peer.number, ""))
            return False
        except ChannelError as error:
            self._closings.append((peer.number, str(error)))
            return False
        return True

    def _note_long_message(self) -> None:
        self._trims_due, self._trims_from = TRIMS, time.monotonic() + TRIM_AFTER_S

    def _bound_unfinished(self, peer: Peer) -> None:
        """Hang up on the process that keeps most bytes of unfinished messages if all together are too many."""
        self._note_long_message()
        peer.progressed = time.monotonic()
        self._pacing.on_part(peer)
        greedy = find_greedy(self._peers.values(), UNFINISHED_BYTES)
        self._closings.extend(
            (each.number, f"unfinished messages have more than {UNFINISHED_BYTES} bytes") for each in greedy
        )

    def _handle_greeting(self, peer: Peer, kind: Kind, message: list[Any]) -> None:
        """Handle HELLO and STOP, which concern the coordinator itself."""
        if kind is Kind.STOP and self._listener is not None:
            self.stop()
        elif kind is Kind.HELLO and message[1] == VERSION and not peer.known:
            peer.known = True
            peer.channel.trust()
            self._perform(self.state.on_client_connected(peer.number))
            self._send(peer.number, [Kind.WELCOME, VERSION, len(self._arena), self._description], (self._arena_fd,))
        else:
            self._closings.append((peer.number, f"the client must send HELLO with protocol version {VERSION}"))

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            sock = self._listener.accept()
        except OSError as error:
            if error.errno in _NO_ROOM:
                # The client stays in the queue of the listener, which would be reported again and again.
                self._lines.print("no client can be accepted", str(error), time.monotonic())
                self._unwatch(self._listener.fileno())
                self._listens = False
            return  # else the client has disconnected
        if credentials(sock)[1] != os.geteuid():
            sock.close()
        elif sum(peer.client for peer in self._peers.values()) >= CLIENTS_LIMIT:
            text = f"{CLIENTS_LIMIT} are connected, which is the limit"
            self._lines.print("refusing a client", text, time.monotonic())
            sock.close()
        else:
            self.add_client(sock)

    def _disconnect(self, number: int, reason: str) -> None:
        """Close a connection: remove a client, kill a process. ``reason`` is empty if the peer disconnected itself."""
        peer = self._forget(number)
        if peer is None:
            return
        if not peer.client:
            if reason != "idle":
                self._processes.kill(number, reason)  # most often it has exited, which its pidfd reports
            return
        if reason:
            self._lines.print(f"disconnecting client {number}", reason[:200], time.monotonic())
            self._pacing.on_refused(peer)
        self._perform(self.state.on_client_disconnected(number))
        if self._listener is None and not any(p.client for p in self._peers.values()):
            self.stop()

    def _on_process_connected(self, number: int, channel: Channel) -> None:
        self._add_peer(number, channel, client=False)

    def _on_process_exited(self, number: int) -> None:
        """Handle the last messages of a process, then its exit."""
        peer = self._peers.get(number)
        if peer is not None:
            while self._on_readable(peer):
                pass
            self._forget(number)
        self._perform(self.state.on_process_exited(number, self._processes.ending(number)))

    def _take_outcomes(self) -> None:
        for name, arguments in self._background.take():
            if name == PRELOAD:
                self._processes.preload()
            else:
                self._perform(getattr(self.state, name)(*arguments))

    def _tick(self, now: float) -> None:
        self._perform(self.state.on_tick(now))
        self._processes.tick(now)
        self._lines.tick(now)
        self._note_active_clients(now)
        self._pacing.tick(now)
        self._ring_memory.close_sent()
        if self._listener is not None and not self._listens:
            self._listens = True
            self._watch(self._listener.fileno(), self._accept)
        for peer in self._peers.values():
            if not peer.known and now - peer.joined > HELLO_S:
                self._closings.append((peer.number, f"the client sent no HELLO within {HELLO_S:g} s"))
            if peer.client and peer.channel.unfinished and now - peer.progressed > UNFINISHED_S:
                self._closings.append((peer.number, f"the rest of a message did not come within {UNFINISHED_S:g} s"))
            if peer.left_out and not peer.channel.queued:
                self._send(peer.number, [Kind.TEXT, 0, 2, 0, ""])
        if self._trims_due and now >= self._trims_from and not self.state.has_payloads:
            self._trims_due -= 1
            self.state.compact()
            self._background.submit(TrimMemory())
        for offset, nbytes in self.state.trim(RESIDENT):
            self._arena.madvise(mmap.MADV_REMOVE, offset, nbytes)

    def _has_duties(self) -> bool:
        """Return whether a tick has anything to look at before the next event."""
        return bool(
            has_duties(self.state)
            or self._processes.has_duties
            or self._lines.counts
            or self._pacing.has_refused
            or self._ring_memory.has_unsent
            or self._trims_due
            or not self._listens
            or any(not p.known or p.left_out or (p.client and p.channel.unfinished) for p in self._peers.values())
        )

    def _rest_s(self) -> float:
        """Return for how many seconds this process may sleep if it has no duties and no event comes."""
        return REST_S if self.state.worker_set.rings.exist else math.inf

    def _add_peer(self, number: int, channel: Channel, *, client: bool) -> Peer:
        peer = Peer(number, channel, channel.fileno(), client, known=not client)
        self._peers[number] = peer
        self._watch(peer.fd, lambda: self._on_readable(peer))
        return peer

    def _forget(self, number: int) -> Peer | None:
        peer = self._peers.pop(number, None)
        if peer is not None:
            self._unwatch(peer.fd)
            peer.channel.close()
            if peer.pidfd >= 0:
                self._unwatch(peer.pidfd)
                os.close(peer.pidfd)
        return peer

    def _watch(self, fd: int, action: Callable[[], object]) -> None:
        self._actions[fd] = action
        self._epoll.register(fd, select.EPOLLIN)

    def _unwatch(self, fd: int) -> None:
        del self._actions[fd]
        self._unwatched.add(fd)
        self._epoll.unregister(fd)

    def _close(self) -> None:
        self._background.stop()  # it ends while the processes do
        if self._listener is not None:
            self._listener.close()
        for number in list(self._peers):
            self._forget(number)
        self._ring_memory.close()
        self._processes.close()
        self._background.close()
        self._epoll.close()
        self._arena.close()
        os.close(self._arena_fd)
