"""The rings of a worker: which clients may run which models without the coordinator, and the wait for any of them.

Guarantees: a client that writes anything but a valid entry loses its connection, and nothing else happens. A worker never
waits for a client: it sends and receives bells without waiting, even if the client changes its own end. It takes one entry of
each ring in turn.

Once the worker has the compiled loop (`RingLoop`), that serves all entries but unusual ones, and sleeps unless there are rings of
calls too.
"""

from __future__ import annotations

import _socket
import os
import select
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from ..ipc.channel import Channel
from ..ipc.processors import Spin
from ..ipc.ring import BELL, EXECUTED, FAILED, RETURNED, Entry, MalformedRing, ServingRing
from ..kernels.native import ring_words
from ..memory.arena_view import ArenaView
from .ring_loop import RingLoop, Served

if TYPE_CHECKING:
    from ..engines.object_loader import NativeKernel
    from ..plans.routine import Routine

#: Slots start on multiples of this.
_GRAIN: Final = 128
#: Bells that one call receives; they are equal.
_BELLS: Final = 256
#: The first field of an entry differs from entry to entry.
_SEQUENCE_BYTES: Final = 8
#: Entries of one ring that are remembered as checked: clients use the same slots again and again.
_CHECKED: Final = 1024


class Beside(Protocol):
    """What else a worker waits for: the rings of calls."""

    watch: Callable[[int], object]
    unwatch: Callable[[int], object]

    def __len__(self) -> int:
        """Return how many rings there are."""

    @property
    def pending(self) -> bool:
        """Whether there is something to do."""

    def take_bell(self, fd: int) -> None:
        """Receive what has come at a descriptor that is watched."""

    def sleep(self) -> bool:
        """Ask for bells; False if there is something to do. `awake` is called afterwards."""

    @property
    def longest_sleep_ms(self) -> float | None:
        """How long the sleep that has begun may last, in milliseconds; None if it has no end."""

    def awake(self) -> None:
        """Ask for no bells."""


class _Attached:
    """One ring, the client's bell, and the models that it may name: sizes of their inputs and outputs in bytes.

    ``checked`` has the entries that were found valid, by their bytes without the sequence: model, addresses.
    """

    __slots__ = ("address", "bell", "checked", "models", "ring")

    def __init__(self, ring: ServingRing, address: int, bell: _socket.socket) -> None:
        self.ring = ring
        self.address = address
        self.bell = bell
        self.models: dict[int, tuple[Sequence[int], Sequence[int]]] = {}
        self.checked: dict[bytes, tuple[int, Sequence[int], Sequence[int]]] = {}

    def wake(self) -> None:
        """Wake the client. A full bell is as good as another one, and a client that has exited needs none."""
        try:
            self.bell.send(b"\0", BELL)
        except OSError:
            pass


class WorkerRings:
    """The rings that are attached. ``execute(model, inputs, outputs)`` runs a model on addresses; errors go to ``failed``.

    ``broken(ring, reason)`` is called for a client that breaks the rules, ``failed(ring, sequence, error)`` for an entry.
    ``routine(model)`` returns a model's plan for a compiled loop, None if it has none or was never executed.
    """

    def __init__(
        self,
        channel: Channel,
        arena: ArenaView,
        execute: Callable[[int, Sequence[int], Sequence[int]], None],
        failed: Callable[[int, int, Exception], None],
        broken: Callable[[int, str], None],
        routine: Callable[[int], Routine | None],
        spin_us: int = 0,
    ) -> None:
        self._arena = arena
        self._execute = execute
        self._failed = failed
        self._broken = broken
        self._routine = routine
        self._rings: dict[int, _Attached] = {}
        self._bells: dict[int, _Attached] = {}
        self._channel = channel.fileno()
        self._poll = select.poll()
        self._poll.register(self._channel, select.POLLIN)
        self._paused = False
        self._beside: Beside | None = None
        self._spin = Spin(spin_us)
        self._spin_us = spin_us
        self._loop: RingLoop | None = None
        #: The rings that the loop serves, in its order, and whether it must be told of changes before it runs again.
        self._looped: list[_Attached] = []
        self._is_stale = True
        #: Whether an entry was served since the last sleep.
        self._served = False

    def wait_beside(self, beside: Beside) -> None:
        """Let `wait` return for something else too."""
        self._beside = beside
        beside.watch = lambda fd: self._poll.register(fd, select.POLLIN)
        beside.unwatch = self._poll.unregister

    def __len__(self) -> int:
        return len(self._rings)

    def take_loop(self, serve: NativeKernel) -> None:
        """Serve with a compiled loop from now on, given by its kernel."""
        self._loop = RingLoop(serve, self._arena, self._spin_us)
        self._is_stale = True

    def note_change(self) -> None:
        """Note that models may have other plans from now on."""
        self._is_stale = True

    def attach(self, number: int, memory: int, bell: int) -> None:
        """Serve a ring; its descriptors are this object's now."""
        sock = _socket.socket(fileno=bell)
        try:
            view = ArenaView(memory)
            view.keep_from_forks()
        finally:
            os.close(memory)
        attached = _Attached(ServingRing(number, view.buffer(0, view.nbytes)), view.address, sock)
        self._is_stale = True
        self._rings[number] = attached
        self._bells[sock.fileno()] = attached
        self._poll.register(sock, select.POLLIN)
        if self._paused:
            attached.ring.pause()

    def allow(self, number: int, model: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Accept runs of a model on a ring. Ignores a ring that is not attached."""
        if number in self._rings:
            self._is_stale = True
            self._rings[number].models[model] = inputs, outputs
            self._rings[number].checked.clear()

    def forbid(self, model: int) -> None:
        """Accept no further runs of a model that is dropped."""
        for attached in self._rings.values():
            attached.models.pop(model, None)
            attached.checked.clear()
        if self._loop is not None:
            self._renew(self._loop)  # now: the loop must not keep the model's kernels

    def detach(self, number: int) -> None:
        """Serve a ring no more. Ignores one that is not attached."""
        attached = self._rings.pop(number, None)
        self._is_stale = True
        if attached is not None:
            if self._bells.pop(attached.bell.fileno(), None) is not None:
                self._poll.unregister(attached.bell)
            attached.bell.close()

    def pause(self) -> None:
        """Take no entries until `wait`, because a function may take as long as it likes."""
        self._paused = True
        self._change(ServingRing.pause)

    def wait(self) -> bool:
        """Wait for a message of the coordinator or an entry; return whether there is a message."""
        if self._paused:
            if self._ready(0):
                return True
            self._paused = False
            self._change(ServingRing.resume)
        beside = self._beside
        if self._loop is not None and self._run_loop(self._loop, sleeps=not beside) != ring_words.IDLE:
            return self._ready(0)
        rings = [attached.ring for attached in self._rings.values()]
        if any(ring.has_entries for ring in rings) or (self._served and self._spin and self._spin_for_entry(rings)):
            # Messages get their turn between entries, and a bell of a client that has exited is found.
            return self._ready(0)
        self._served = False
        try:
            if not all(ring.sleep() for ring in rings) or (beside is not None and not beside.sleep()):
                return self._ready(0)
            return self._ready(None if beside is None else beside.longest_sleep_ms)
        finally:
            for ring in rings:
                ring.awake()
            if beside is not None:
                beside.awake()

    def serve(self) -> None:
        """Execute an entry of each ring that has one; with a compiled loop, all. While the worker pauses, nothing."""
        if self._paused:
            return  # clients take what they have submitted for returned
        if self._loop is not None:
            self._run_loop(self._loop, sleeps=False)
            return
        for attached in [*self._rings.values()]:
            if attached.ring.has_entries:
                self._serve_or_break(attached)

    def _run_loop(self, loop: RingLoop, *, sleeps: bool) -> int:
        """Run the compiled loop, do what it leaves for Python, and return why it ended."""
        if self._is_stale:
            self._is_stale = False
            self._renew(loop)
        outcome = loop.run(sleeps=sleeps)
        if outcome == ring_words.UNUSUAL:
            self._serve_or_break(self._looped[loop.place])
        elif outcome == ring_words.FAILED:
            attached = self._looped[loop.place]
            try:
                raise loop.error()
            except Exception as error:  # noqa: BLE001 - the client gets the error
                self._fail(attached, error)
        return outcome

    def _renew(self, loop: RingLoop) -> None:
        """Let the loop serve the present rings and models."""
        self._looped = [*self._rings.values()]
        served = []
        for each in self._looped:
            found = {number: self._routine(number) for number in each.models}
            routines = {number: (plan, *each.models[number]) for number, plan in found.items() if plan is not None}
            bell = each.bell.fileno() if each.bell.fileno() in self._bells else -1
            served.append(Served(each.ring, each.address, bell, routines))
        loop.renew(served, [self._channel])

    def _serve_or_break(self, attached: _Attached) -> None:
        try:
            self._serve_one(attached)
        except MalformedRing as error:
            self._break(attached, error)

    def _fail(self, attached: _Attached, error: Exception) -> None:
        """End the entry that has been begun with an error, and wake its client."""
        ring = attached.ring
        self._failed(ring.number, ring.next_sequence, error)
        ring.complete(FAILED)
        if ring.must_ring():
            attached.wake()

    def _serve_one(self, attached: _Attached) -> None:
        ring = attached.ring
        fields = ring.copy_next()
        if fields is None:
            return
        self._served = True
        if self._spin:
            ring.note_processor(self._spin.here())
        if not ring.begin():
            # Not checked: its client may have unloaded its model since.
            ring.complete(RETURNED)
        else:
            found = self._checked(attached, fields)
            try:
                self._execute(*found)
            except Exception as error:  # noqa: BLE001 - the client gets the error
                self._fail(attached, error)
                return
            ring.complete(EXECUTED)
            if self._loop is not None and self._routine(found[0]) is not None:
                self._is_stale = True  # this was its first execution
        if ring.must_ring():
            attached.wake()

    def _checked(self, attached: _Attached, fields: bytes) -> tuple[int, Sequence[int], Sequence[int]]:
        """Return model and addresses of an entry that `copy_next` has returned. Raises MalformedRing."""
        found = attached.checked.get(fields[_SEQUENCE_BYTES:])
        if found is None:
            entry = attached.ring.parse(fields)
            self._check(attached, entry)
            base = self._arena.address
            found = entry.model, [base + each for each in entry.inputs], [base + each for each in entry.outputs]
            if len(attached.checked) >= _CHECKED:
                attached.checked.clear()
            attached.checked[fields[_SEQUENCE_BYTES:]] = found
        return found

    def _check(self, attached: _Attached, entry: Entry) -> None:
        """Raise MalformedRing unless an entry names a model and slots that are large enough for it."""
        sizes = attached.models.get(entry.model)
        if sizes is None:
            raise MalformedRing(f"a run of model {entry.model}, which the client does not have here")
        for offsets, needed in zip((entry.inputs, entry.outputs), sizes, strict=True):
            if len(offsets) != len(needed):
                raise MalformedRing(f"a run with {len(offsets)} tensors instead of {len(needed)}")
            for offset, nbytes in zip(offsets, needed, strict=True):
                if offset % _GRAIN or offset + nbytes > self._arena.nbytes:
                    raise MalformedRing(f"a slot of {nbytes} bytes at offset {offset}")

    def _spin_for_entry(self, rings: Sequence[ServingRing]) -> bool:
        """Spin until there is an entry, while a client was last seen on another processor; return whether there is one."""
        here = self._spin.here()
        for ring in rings:
            ring.note_processor(here)
        there = [ring for ring in rings if ring.client_ran not in (0, here)]
        if not there:
            return False
        return self._spin.until(lambda: any(ring.has_entries for ring in rings), lambda: there[0].client_ran)

    def _change(self, change: Callable[[ServingRing], bool]) -> None:
        for attached in [*self._rings.values()]:
            try:
                if change(attached.ring):
                    attached.wake()
            except MalformedRing as error:
                self._break(attached, error)

    def _break(self, attached: _Attached, error: MalformedRing) -> None:
        self.detach(attached.ring.number)
        self._broken(attached.ring.number, str(error))

    def _ready(self, timeout: float | None) -> bool:
        """Receive bells; return whether the coordinator has sent a message or disconnected."""
        found = False
        for fd, _ in self._poll.poll(timeout):
            if fd == self._channel:
                found = True
            elif (attached := self._bells.get(fd)) is not None:
                self._receive_bells(fd, attached)
            elif self._beside is not None:
                self._beside.take_bell(fd)
        return found

    def _receive_bells(self, fd: int, attached: _Attached) -> None:
        try:
            if attached.bell.recv(_BELLS, _socket.MSG_DONTWAIT):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        # The client has closed its end: the coordinator detaches the ring. Entries that it has submitted are executed.
        self._is_stale = True
        del self._bells[fd]
        self._poll.unregister(fd)
