"""The memory and bells of rings: made here, sent to client and worker by descriptor, and watched."""

from __future__ import annotations

import _socket
import os
from collections.abc import Callable
from typing import Any

from poolrt.memory.arena import make_sealed_memory
from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.ipc.ring import NBYTES
from poolrt.workers.ipc.ring import Ring as RingWords
from poolrt.workers.memory.arena_view import ArenaView

from .peers import Peer
from .ring import Ring


class RingMemory:
    """Makes rings; ``send(peer, message, descriptors)`` sends them. Descriptors stay open until they are sent."""

    def __init__(self, peers: dict[int, Peer], send: Callable[[int, list[Any], tuple[int, ...]], None]) -> None:
        self._peers = peers
        self._send = send
        self._unsent: list[tuple[Peer, tuple[int, ...]]] = []

    def attach(self, ring: Ring) -> None:
        """Make a ring's memory and bells and send them to both sides. Raises OSError, and has sent nothing then."""
        view, worker, client = self._make("poolrt-ring", NBYTES)
        ring.view = RingWords(ring.number, view)
        self._pass(ring.worker, [Kind.ATTACH, ring.number], worker)
        self._pass(ring.client, [Kind.RING, ring.number], client)

    @property
    def has_unsent(self) -> bool:
        """Whether there are descriptors to close once they are sent."""
        return bool(self._unsent)

    def close_sent(self) -> None:
        """Close the descriptors that have been sent."""
        unsent = []
        for peer, fds in self._unsent:
            if peer.channel.queued and peer.channel.fileno() >= 0:
                unsent.append((peer, fds))
            else:
                _close(fds)
        self._unsent = unsent

    def close(self) -> None:
        """Close all descriptors."""
        for _, fds in self._unsent:
            _close(fds)
        self._unsent = []

    @staticmethod
    def _make(name: str, nbytes: int) -> tuple[Any, tuple[int, int], tuple[int, int]]:
        """Return new memory, and its descriptor and that of a bell for each side."""
        descriptors = [make_sealed_memory(name, nbytes)]
        try:
            view = ArenaView(descriptors[0])
            ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
            descriptors += [ours.detach(), theirs.detach()]
            descriptors.append(os.dup(descriptors[0]))
        except OSError:
            for fd in descriptors:
                os.close(fd)
            raise
        memory, bell, other, again = descriptors
        return view.buffer(0, view.nbytes), (memory, bell), (again, other)

    def _pass(self, number: int, message: list[Any], fds: tuple[int, ...]) -> None:
        self._send(number, message, fds)
        peer = self._peers.get(number)
        if peer is not None and peer.channel.queued:
            self._unsent.append((peer, fds))
        else:
            _close(fds)


def _close(fds: tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)
