"""A request of a client to its coordinator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context

from poolrt.workers.ipc.channel import Message


class Request:
    """A request and its answers so far. The thread that reads the last answer calls ``settle(answer)`` once.

    `settle` must be short and must not wait. ``resolve`` is for futures: the connection's own thread then calls it.
    ``begin()`` is called when a worker executes the request and does not answer at once; it must be as short.
    What a function prints is written in ``context``, that of the call: notebooks find the cell in it.
    """

    __slots__ = ("answers", "begin", "context", "done", "number", "resolve", "settle")

    def __init__(
        self,
        settle: Callable[[Message], None] | None = None,
        resolve: Callable[[Message], None] | None = None,
        begin: Callable[[], object] | None = None,
    ) -> None:
        self.number = 0
        self.answers: deque[Message] = deque()
        self.done = False
        self.settle = settle
        self.resolve = resolve
        self.begin = begin
        self.context: Context | None = None
