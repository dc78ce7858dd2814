"""The bells of the rings of one connection, and its channel: what the thread that leads the connection sleeps at."""

from __future__ import annotations

import os
import select

from .client_call_ring import ClientCallRing


class Bells:
    """What one thread polls, and others change. The caller locks, except for `call`."""

    __slots__ = ("_call", "_channel", "_poll", "_rings")

    def __init__(self) -> None:
        self._poll = select.poll()
        self._rings: dict[int, ClientCallRing] = {}
        self._channel = -1
        #: An event of the system that `call` sets; -1 without rings.
        self._call = -1

    def add(self, ring: ClientCallRing) -> bool:
        """Wait for the bell of a ring; close it and return False if this process can have no more descriptors."""
        if self._call < 0:
            try:
                self._call = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            except OSError:
                ring.bell.close()
                return False
            self._poll.register(self._call, select.POLLIN)
        self._rings[ring.bell.fileno()] = ring
        self._poll.register(ring.bell, select.POLLIN)
        return True

    def forget(self, ring: ClientCallRing) -> None:
        """Wait no longer for the bell of a ring. May be repeated."""
        if self._rings.pop(ring.bell.fileno(), None) is not None:
            self._poll.unregister(ring.bell)

    def watch(self, channel: int) -> None:
        """Wait for messages at the descriptor of a channel too."""
        if channel != self._channel:
            self._poll.register(channel, select.POLLIN)
            self._channel = channel

    def call(self) -> None:
        """End the sleep of the thread that is in `wait`, or its next one. Any thread may call this while there are rings."""
        try:
            os.eventfd_write(self._call, 1)
        except OSError:
            pass  # it is called already, or nobody waits any more

    def wait(self, limit_ms: float | None) -> list[int]:
        """Return the descriptors that are ready; none after ``limit_ms`` milliseconds."""
        return [fd for fd, _ in self._poll.poll(limit_ms)]

    def take(self, fd: int) -> bool:
        """Receive what is at a descriptor that `wait` returned; return whether it is the channel's, which is left alone."""
        if fd == self._channel:
            return True
        if fd == self._call:
            try:
                os.eventfd_read(fd)
            except BlockingIOError:
                pass  # an interrupt has ended an earlier call of this after it had read
        elif (ring := self._rings.get(fd)) is not None and not ring.take_bells():
            self.forget(ring)  # the worker has exited, which the coordinator says
        return False

    def close(self) -> None:
        """Wait for nothing any more; the bells stay open. May be repeated."""
        event, self._call = self._call, -1
        self._poll, self._rings, self._channel = select.poll(), {}, -1
        if event >= 0:
            os.close(event)
