"""The client's ends of rings: runs that a worker takes from shared memory, without a message to the coordinator.

`RingRuns` keeps the rings that the coordinator has granted to a connection. A ring has one run at a time; if all are in use,
or anything is unusual, the run goes by messages. That costs time only.

Guarantees: an entry is executed once, or the caller learns that the run has to go as a message. Slots of an entry are not used
again before the worker has published its end, returned it, or exited.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from poolrt.errors import error_from_wire
from poolrt.workers.ipc.channel import Channel, MalformedMessage, Message
from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.ipc.ring import CAPACITY, CHANGING, EXECUTED, FAILED, OPEN, PAUSED, SubmittingRing
from poolrt.workers.memory.arena_view import ArenaView

if TYPE_CHECKING:
    from .client import Client

#: Seconds between looks at the coordinator's messages: a worker's end of a bell may outlive it in a process that it forked.
_LOOK_S: Final = 0.1
#: Seconds between looks at a state that changes: the worker needs some microseconds.
_CHANGE_S: Final = 0.00005
_BELLS: Final = 256
#: The kinds of messages that `RingRuns.accept` takes.
KINDS: Final = frozenset((Kind.RING, Kind.RING_MODEL, Kind.RING_LOST, Kind.RING_FAILED))


class RingLost(Exception):
    """The worker has exited. ``begun``: it may have executed a part of the entry."""

    def __init__(self, ring: int, *, begun: bool) -> None:
        super().__init__(ring, begun)
        self.ring, self.begun = ring, begun


class ClientRing:
    """One ring to a worker. ``reserved`` is held by the thread that uses it."""

    __slots__ = (
        "__weakref__",
        "_abandoned",
        "_bell",
        "_ring",
        "_sequence",
        "errors",
        "lost",
        "models",
        "number",
        "reserved",
    )

    def __init__(self, number: int, ring: SubmittingRing, bell: socket.socket) -> None:
        bell.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, int(_LOOK_S * 1e6)))
        self.number = number
        self.reserved = threading.Lock()
        #: Models that may be run on it.
        self.models: set[int] = set()
        #: Errors of entries by sequence.
        self.errors: dict[int, dict[str, Any]] = {}
        #: Whether its worker has exited.
        self.lost = False
        self._ring = ring
        self._bell = bell
        # A lost ring is closed once no thread uses it.
        weakref.finalize(self, bell.close).atexit = False
        self._sequence = 0
        #: How to free the slots of entries whose caller was interrupted.
        self._abandoned: list[Callable[[], None]] = []

    def is_free(self) -> bool:
        """Whether a run may be submitted. The caller has reserved the ring."""
        ring = self._ring
        if self.lost or ring.state != OPEN or ring.submitted - ring.done >= CAPACITY:
            return False
        if self._abandoned:
            if ring.done < ring.submitted:
                return False
            self._free_abandoned()
        return True

    def run(
        self,
        client: Client,
        model: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        deadline: float | None = None,
    ) -> bool:
        """Run a model and wait; False if the worker has not executed it and never will. The caller has reserved the ring.

        Raises the run's error, RingLost, and PoolClosed. After any other error, also TimeoutError, call `abandon`.
        """
        ring = self._ring
        self._sequence = sequence = ring.append(model, inputs, outputs)
        try:
            self._bell.send(b"\0", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            pass  # the worker has bells to receive
        except OSError:
            self._wait_for_loss(client, sequence, deadline)
        while ring.done < sequence:
            state = ring.state
            if state == PAUSED:
                if ring.done < sequence:
                    return False
            elif state == CHANGING:
                self._wait_for_state(client, deadline)
            else:
                self._wait_for_bell(client, sequence, deadline)
        status = ring.status(sequence)
        if status == FAILED:
            client.wait_while(lambda: sequence not in self.errors and not self.lost)
            error = self.errors.pop(sequence, None)
            if error is None:
                raise RingLost(self.number, begun=False)
            raise error_from_wire(error)
        return status == EXECUTED

    def abandon(self, free: Callable[[], None]) -> None:
        """Call ``free`` once no worker can write to the slots of the last entry."""
        self._abandoned.append(free)
        if self.lost:
            self._free_abandoned()

    def end(self) -> None:
        """Note that the worker has exited."""
        self.lost = True
        self._free_abandoned()

    def close(self) -> None:
        """Close the bell."""
        self._bell.close()

    def _wait_for_bell(self, client: Client, sequence: int, deadline: float | None) -> None:
        try:
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                if left < _LOOK_S and not self._is_readable(left):
                    return
            if self._bell.recv(_BELLS):
                return
        except BlockingIOError:
            client.look()
            if not self.lost:
                return
        except TimeoutError:
            raise
        except OSError:
            pass
        if self._ring.done < sequence:
            self._wait_for_loss(client, sequence, deadline)

    def _is_readable(self, seconds: float) -> bool:
        """Wait for a bell; return whether there is one."""
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _wait_for_state(self, client: Client, deadline: float | None) -> None:
        """Wait until the worker has paused or resumed. One that has exited never does."""
        for _ in range(1000):
            if self._ring.state != CHANGING:
                return
            time.sleep(_CHANGE_S)
        client.look()
        if self.lost:
            self._wait_for_loss(client, self._sequence, deadline)
        elif deadline is not None and time.monotonic() > deadline:
            raise TimeoutError

    def _wait_for_loss(self, client: Client, sequence: int, deadline: float | None) -> None:
        """Wait until the worker has certainly exited; return if it has completed the entry before. Raises RingLost."""
        client.wait_while(lambda: not self.lost, deadline)
        if self._ring.done < sequence:
            raise RingLost(self.number, begun=self._ring.taken >= sequence)

    def _free_abandoned(self) -> None:
        while self._abandoned:
            self._abandoned.pop()()


class RingRuns:
    """The rings of one connection."""

    def __init__(self) -> None:
        self._rings: dict[int, ClientRing] = {}

    def accept(self, message: Message, channel: Channel) -> None:
        """Handle a message about rings. The thread that reads the connection calls this."""
        kind, number = message[:2]
        if kind == Kind.RING:
            self._add(number, channel)
            return
        ring = self._rings.get(number)
        if ring is None:
            return
        if kind == Kind.RING_MODEL:
            ring.models.add(message[2])
        elif kind == Kind.RING_FAILED:
            ring.errors[message[2]] = message[3]
        else:
            del self._rings[number]
            ring.end()

    def reserve(self, model: int) -> ClientRing | None:
        """Return a ring for a run of a model, reserved for this thread; None if there is none that is free."""
        for ring in [*self._rings.values()]:
            if model in ring.models and ring.reserved.acquire(blocking=False):
                if ring.is_free():
                    return ring
                ring.reserved.release()
        return None

    def close(self) -> None:
        """Close all rings. The connection has ended."""
        for ring in [*self._rings.values()]:
            ring.close()
        self._rings = {}

    def _add(self, number: int, channel: Channel) -> None:
        try:
            memory, bell = channel.take_fd(), channel.take_fd()
        except MalformedMessage:
            return  # this process can have no more descriptors
        sock = socket.socket(fileno=bell)
        try:
            view = ArenaView(memory)
        except OSError:
            sock.close()
            return
        finally:
            os.close(memory)
        self._rings[number] = ClientRing(number, SubmittingRing(number, view.buffer(0, view.nbytes)), sock)
