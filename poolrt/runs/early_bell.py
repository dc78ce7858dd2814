"""Bells that a thread rings before it publishes its run, so that the worker wakes up while the inputs are copied.

A worker on another processor needs tens of microseconds to wake up, a client less than ten to publish a short run. A worker that
the kernel puts on the client's processor may run at once: it finds nothing, sleeps again, and needs another bell. That costs
more than an early bell saves, so after a bell that was too early the next runs ring in time.

Guarantees: a run begins as soon after its publication as without this. Each sleep of a worker has its number, so a client that
finds another one rings again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from poolrt.workers.ipc.ring import WORKER_SLEEPS

if TYPE_CHECKING:
    from .client_ring import ClientRing

#: Runs that ring in time after a bell that was too early: at least and at most. Each such bell doubles them, any other one
#: halves them.
_LEAST: Final = 4
_MOST: Final = 256


class EarlyBell:
    """Whether the next run of one ring rings early. Threads that share it disturb nothing but this choice."""

    __slots__ = ("_pause", "rest")

    def __init__(self) -> None:
        #: How many of the next runs ring in time, and how many will after the next bell that is too early.
        self.rest = 0
        self._pause = _LEAST

    def ring(self, ring: ClientRing) -> int:
        """Wake the worker of a ring if it sleeps and that is likely to save time; return the number of its sleep, else 0."""
        if self.rest:
            self.rest -= 1
            return 0
        return ring.ring_bell() if ring.words[WORKER_SLEEPS] else 0

    def note(self, ring: ClientRing, sleep: int) -> None:
        """Note whether a bell for a sleep was too early; call it after the run was published."""
        if ring.words[WORKER_SLEEPS] in (0, sleep):
            if self._pause > _LEAST:
                self._pause //= 2
        else:
            self.rest = self._pause
            self._pause = min(2 * self._pause, _MOST)
