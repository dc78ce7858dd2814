"""Slots for the long results of functions: the coordinator leases them to the client that called, and this worker writes them.

The client learns of the lease before the worker does, so nothing is lost if either exits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from ..ipc.channel import Channel, ChannelClosed, Message
from ..ipc.protocol import Kind
from ..memory.arena_view import ArenaView

#: Seconds to wait for free memory for a result that cannot travel otherwise, and between requests for it.
WAIT_S: Final = 10.0
_PAUSE_S: Final = 0.02


class ResultSlots:
    """Asks the coordinator for slots. Messages that come before its answer are for `take_deferred`, in their order."""

    def __init__(self, channel: Channel, send: Callable[[Message], None], arena: ArenaView) -> None:
        self._channel = channel
        self._send = send
        self.arena = arena
        self._deferred: deque[Message] = deque()
        #: The call that takes slots: ring and request, or 0 and the token of a job.
        self.ring = self.request = 0

    def take(self, sizes: Sequence[int], *, wait: bool) -> list[int] | None:
        """Return the offsets of slots for ``sizes`` bytes; None if there is no memory, with ``wait`` after some seconds."""
        until = time.monotonic() + WAIT_S
        while True:
            found = self._ask(sizes)
            if found or not wait or time.monotonic() >= until:
                return found or None
            time.sleep(_PAUSE_S)

    def take_deferred(self) -> Message | None:
        """Return the next message that came while a slot was awaited."""
        return self._deferred.popleft() if self._deferred else None

    @property
    def has_deferred(self) -> bool:
        """Whether `take_deferred` has a message."""
        return bool(self._deferred)

    def _ask(self, sizes: Sequence[int]) -> list[int]:
        self._send([Kind.ROOM, self.ring, self.request, [*sizes]])
        while True:
            message = self._channel.receive(block=True)
            if message is None:
                raise ChannelClosed("the coordinator gives no room for a result")
            if message[0] == Kind.ROOM_TAKEN:
                found: list[int] = message[1]
                return found
            self._deferred.append(message)
