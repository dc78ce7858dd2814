"""One call that is sent to the coordinator as a message, until it has ended."""

from __future__ import annotations

from contextvars import copy_context
from typing import Any

from poolrt.connection.client import Request
from poolrt.connection.futures import PoolFuture

from .call_pickles import Packed


class MessageCall:
    """A call, until it has ended. ``function`` is None if the payload has the function."""

    __slots__ = (
        "context",
        "function",
        "future",
        "name",
        "nbytes",
        "overtaken",
        "payload",
        "plain",
        "priority",
        "request",
        "sent",
        "ticket",
        "unsent",
    )

    def __init__(self, packed: Packed, future: PoolFuture[Any], priority: int) -> None:
        self.function, payload, self.plain, sent, self.name = packed
        #: The buffers of its arguments, until it has ended.
        self.sent = sent
        self.payload = payload
        self.nbytes = len(payload)
        self.future = future
        #: As of `RingCall`.
        self.priority, self.overtaken, self.ticket = priority, 0, 0
        self.context = copy_context()
        #: None until the call is sent.
        self.request: Request | None = None
        #: Why it could not be sent.
        self.unsent: Exception | None = None

    def free(self) -> None:
        """Let the memory of its arguments be used again: no worker reads it any more."""
        sent, self.sent = self.sent, None
        if sent is not None:
            sent.end()
