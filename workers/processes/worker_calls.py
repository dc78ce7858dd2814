"""The call rings of a worker: functions that clients call here without the coordinator.

The worker takes one call of each ring in turn, as long as there are any. It stops after a call if the coordinator wants it for a
job (`poolrt.workers.ipc.gate`), and looks at its messages at least once in `_LOOK_S` seconds, between calls.

Guarantees: a client that writes anything but a valid entry loses its connection, and nothing else happens. A worker never
waits for a client: bells are sent and received without waiting, and a result that finds no room in the ring goes by messages.
"""

from __future__ import annotations

import _socket
import os
import pickle
import select
import time
from collections.abc import Callable
from typing import Any, Final

from ..ipc.call_ring import BY_MESSAGE, DOZE_S, RAISED, RETURNED, RETURNED_PLAIN, WAKE_AT, ServingCallRing
from ..ipc.channel import Channel, Message
from ..ipc.gate import WorkerGate
from ..ipc.protocol import PLACED, PLAIN, SCALARS, Kind
from ..ipc.ring import BELL, MalformedRing
from ..memory.arena_view import ArenaView
from .apart import Apart
from .call_row import CallRow
from .functions import Functions
from .plain_pickles import unpack_scalar
from .prints import Prints
from .result_slots import ResultSlots

#: Seconds of calls between looks at the coordinator's messages.
_LOOK_S: Final = 0.001
#: Nanoseconds of a call up to which a client and its workers keep the processors busy.
_SHORT_NS: Final = 50_000
#: Bells that one call receives; they are equal.
_BELLS: Final = 256
#: Kinds that each call needs: a name of this module is found sooner than one of an enumeration.
_ANSWER, _THREW, _PRINTED = Kind.ANSWER, Kind.THREW, Kind.CALL_PRINTED


class _Attached:
    """One ring, its client, the client's bell, and the functions that it may name: the client's number -> the coordinator's."""

    __slots__ = ("bell", "client", "functions", "ring")

    def __init__(self, ring: ServingCallRing, client: int, bell: _socket.socket) -> None:
        self.ring = ring
        self.client = client
        self.bell = bell
        self.functions: dict[int, int] = {}

    def wake(self) -> None:
        """Wake the client. A full bell is as good as another one, and a client that has exited needs none."""
        try:
            self.bell.send(b"\0", BELL)
        except OSError:
            pass


class WorkerCalls:
    """The call rings that are attached. ``pause`` is called before calls: nothing else is done until they have ended."""

    def __init__(
        self,
        channel: Channel,
        functions: Functions,
        prints: Prints,
        slots: ResultSlots,
        pause: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._functions = functions
        self._prints = prints
        self._slots = slots
        self._pause = pause
        self._gate: WorkerGate | None = None
        self._row = CallRow()
        #: Whether the present sleep is a doze.
        self._dozes = False
        self._apart = Apart()
        self._rings: dict[int, _Attached] = {}
        self._bells: dict[int, _Attached] = {}
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)
        #: Called with each bell that is to be watched or is not any more.
        self.watch: Callable[[int], object] = lambda fd: None
        self.unwatch: Callable[[int], object] = lambda fd: None

    def __len__(self) -> int:
        return len(self._rings)

    def take_gate(self, memory: int) -> None:
        """Use a gate; its descriptor is this object's now."""
        view = _map(memory)
        self._gate = WorkerGate(view.buffer(0, view.nbytes))

    def take_turn(self) -> None:
        """Handle GO."""
        if self._gate is not None:
            self._gate.take_turn()

    def attach(self, number: int, client: int, memory: int, bell: int) -> None:
        """Serve a ring; its descriptors are this object's now."""
        sock = _socket.socket(fileno=bell)
        view = _map(memory)
        attached = _Attached(ServingCallRing(number, view.buffer(0, view.nbytes)), client, sock)
        self._rings[number] = attached
        self._bells[sock.fileno()] = attached
        self.watch(sock.fileno())

    def admit(self, number: int, function: int, known: int) -> None:
        """Accept calls of a function on a ring, by the client's number for it. Ignores a ring that is not attached."""
        if number in self._rings:
            self._rings[number].functions[function] = known

    def forget(self, known: int) -> None:
        """Accept no further calls of a function that is dropped."""
        for attached in self._rings.values():
            attached.functions = {number: each for number, each in attached.functions.items() if each != known}

    def detach(self, number: int) -> None:
        """Serve a ring no more. Ignores one that is not attached."""
        attached = self._rings.pop(number, None)
        if attached is not None:
            if self._bells.pop(attached.bell.fileno(), None) is not None:
                self.unwatch(attached.bell.fileno())
            attached.bell.close()

    def take_bell(self, fd: int) -> None:
        """Receive the bells of a client."""
        attached = self._bells.get(fd)
        if attached is None:
            return
        try:
            if attached.bell.recv(_BELLS, _socket.MSG_DONTWAIT):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        # The client has closed its end: the coordinator detaches the ring.
        del self._bells[fd]
        self.unwatch(fd)

    @property
    def pending(self) -> bool:
        """Whether there are calls that may begin."""
        gate = self._gate
        if gate is not None:
            for attached in self._rings.values():  # no generator, which takes three times as long
                if attached.ring.has_entries:
                    return gate.may_enter()
        return False

    def sleep(self) -> bool:
        """Ask clients for bells; False if there are calls that may begin. Call `awake` afterwards."""
        self._dozes = self._row.sleep()
        beside = 0
        for attached in self._rings.values():
            ring = attached.ring
            ring.sleep(dozes=self._dozes)
            if self._dozes and ring.pace < _SHORT_NS:
                beside = ring.client_ran or beside
        if self.pending:
            return False
        if beside:
            self._apart.leave(beside - 1)
        return True

    @property
    def longest_sleep_ms(self) -> float | None:
        """How long the sleep that has begun may last, in milliseconds; None if it has no end."""
        return 1000 * DOZE_S if self._dozes else None

    def awake(self) -> None:
        """Ask clients for no bells."""
        self._apart.rejoin()
        for attached in self._rings.values():
            attached.ring.awake()

    def serve(self) -> None:
        """Call the functions of entries until there are none, or something else is to be done."""
        gate = self._gate
        if gate is None or not (gate.has_turn or self.pending):
            return
        try:
            if gate.enter():
                self._pause()
                self._serve(gate)
        finally:
            self._prints.end_row()
            if gate.leave():
                self._prints.send([Kind.FREE])

    @property
    def _has_unread(self) -> bool:
        """Whether a client has not read all results of calls that have ended."""
        unread = False
        for attached in self._rings.values():  # no generator, as in `pending`
            unread |= attached.ring.has_unread
        return unread

    def _serve(self, gate: WorkerGate) -> None:
        since = time.monotonic()
        self._row.begin(since, unread=self._has_unread)
        until = since + _LOOK_S
        count = 0
        found = True
        while found:
            found = False
            rings = [*self._rings.values()]
            alone = len(rings) == 1
            for attached in rings:
                ring = attached.ring
                take, words = ring.take_fields, ring.words
                try:
                    while (entry := take()) is not None:
                        found = True
                        count += 1
                        # Of one ring, a client is woken for a call when the next one is taken, which has a fence.
                        if alone and words[WAKE_AT] and ring.must_ring(fenced=True):
                            self._wake(attached)
                        gate.count()
                        self._call(attached, entry)
                        if not alone or gate.closed[0] or time.monotonic() >= until:
                            break
                    if ring.must_ring():
                        self._wake(attached)
                except MalformedRing as error:
                    self.detach(ring.number)
                    self._prints.send([Kind.CALLS_BROKEN, ring.number, str(error)])
                if found and gate.closed[0]:
                    found = False
                    break
            now = time.monotonic()
            if count and (not found or now >= until):
                pace = int((now - since) / count * 1e9)
                for attached in self._rings.values():
                    attached.ring.note_pace(pace)
                self._row.end(count, now)
                if found and (self._slots.has_deferred or self._poll.poll(0)):
                    for attached in rings:
                        if attached.ring.must_ring():
                            self._wake(attached)
                    return
                since, until, count = now, now + _LOOK_S, 0

    def _wake(self, attached: _Attached) -> None:
        """Wake a client, which waits for a call."""
        self._row.interrupt()
        attached.wake()

    def _call(self, attached: _Attached, entry: tuple[int, int, int, bytes]) -> None:
        ring = attached.ring
        _, number, request, arguments = entry
        known = attached.functions.get(number & (PLACED - 1))
        if known is None:
            raise MalformedRing(f"a call of function {number}, which the client does not have here")
        prints, slots = self._prints, self._slots
        if prints.in_row and not prints.used:
            prints.head = _PRINTED, ring.number, request
        else:
            prints.begin_next((_PRINTED, ring.number, request))
        slots.ring, slots.request = ring.number, request
        try:
            if number & SCALARS:
                answer = self._functions.call_short(attached.client, known, arguments)
            elif number & PLACED:
                answer = self._functions.call_placed(attached.client, known, arguments)
            else:
                answer = self._functions.call(attached.client, known, arguments, plain=number >= PLAIN)
        finally:
            printed = prints.end_next()
        if isinstance(answer, bytes):
            if not printed and ring.complete(RETURNED_PLAIN, answer):
                return
            answer = _ANSWER, pickle.dumps(unpack_scalar(answer), pickle.HIGHEST_PROTOCOL)
        kind = answer[0]
        if not printed and kind is _ANSWER and ring.complete(RETURNED, answer[1]):
            return
        if not printed and kind is _THREW and ring.complete(RAISED, _pack_raised(*answer[1:])):
            return
        self._prints.send(_answer(ring.number, request, *answer))
        ring.complete(BY_MESSAGE)


def _pack_raised(trace: str, pickled: bytes) -> bytes:
    """Return the outcome of a function that has raised as bytes of a ring."""
    text = trace.encode("utf-8", "surrogatepass")
    return len(text).to_bytes(4, "little") + text + pickled


def _answer(ring: int, request: int, kind: Kind, *fields: Any) -> Message:
    kinds = {Kind.ANSWER: Kind.CALL_RETURNED, Kind.THREW: Kind.CALL_THREW, Kind.UNFIT: Kind.CALL_UNFIT}
    return [kinds[kind], ring, request, *fields]


def _map(memory: int) -> ArenaView:
    try:
        view = ArenaView(memory)
        view.keep_from_forks()
        return view
    finally:
        os.close(memory)
