"""A gate: memory that the coordinator and one worker share, which says whose turn it is: calls on rings, or a job by messages.

A call may take as long as it likes, so the coordinator gives a worker a job only if no call is under way and none begins before
the job has ended. Each side writes its own words before it reads the other's, with a `fence` between, so they never both go on.

1. The worker is `calling` from before its first look at the gate until it has no calls, or has found the gate closed.
2. The coordinator closes the gate, then looks: if the worker is calling, the job waits until the worker sends FREE.
3. It opens the gate when the job has ended. If the worker `wants` to call by then, it is sent GO: then it makes at least one
   call, whatever the gate says, so jobs cannot starve calls.
"""

from __future__ import annotations

from typing import Any, Final

from .ring import fence

NBYTES: Final = 4096
_CLOSED: Final = 0  # coordinator
_CALLING: Final = 8  # worker, as the others: the rest of a cache line apart from the coordinator's word
_WANTS: Final = 9
_TURNS: Final = 10
_CALLS: Final = 11


class Gate:
    """A gate in ``buffer``: the side of the coordinator."""

    def __init__(self, buffer: Any) -> None:
        self._words = memoryview(buffer).cast("B")[:NBYTES].cast("Q")
        #: How often the worker was sent GO.
        self._turns = 0

    @property
    def calls(self) -> int:
        """Calls on rings that the worker has begun."""
        return self._words[_CALLS]

    @property
    def is_calling(self) -> bool:
        """Whether the worker calls a function now, or is going to because it was sent GO."""
        return bool(self._words[_CALLING]) or self._words[_TURNS] != self._turns

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called last."""
        return bool(self._words[_CLOSED])

    def close(self) -> bool:
        """Close the gate; return whether no call is under way. If one is, the worker sends FREE after it."""
        self._words[_CLOSED] = 1
        fence()
        return not self.is_calling

    def open(self) -> bool:
        """Open the gate; return whether the worker is to be sent GO."""
        self._words[_CLOSED] = 0
        fence()
        if not self._words[_WANTS] or self.is_calling:
            return False
        self._turns += 1
        return True


class WorkerGate:
    """The worker's side of a gate."""

    def __init__(self, buffer: Any) -> None:
        self._words = memoryview(buffer).cast("B")[:NBYTES].cast("Q")
        #: One word: not 0 if the coordinator wants the worker for a job.
        self.closed = self._words[_CLOSED : _CLOSED + 1]
        self._turn = False
        self._calls = self._turns = 0

    def take_turn(self) -> None:
        """Handle GO: the next `enter` is let in."""
        self._turn = True

    @property
    def has_turn(self) -> bool:
        """Whether GO has come and not been used: `leave` uses it, also if there is nothing to call."""
        return self._turn

    def may_enter(self) -> bool:
        """Return whether calls may begin; if not, the coordinator sends GO when they may."""
        words = self._words
        if self._turn or not words[_CLOSED]:
            return True
        words[_WANTS] = 1
        fence()
        return not words[_CLOSED]

    def enter(self) -> bool:
        """Begin to call; False if the gate is closed. Call `leave` in either case."""
        words = self._words
        words[_CALLING] = 1
        fence()
        if words[_CLOSED] and not self._turn:
            return False
        words[_WANTS] = 0
        return True

    def count(self) -> None:
        """Count a call that begins."""
        self._calls += 1
        self._words[_CALLS] = self._calls

    def leave(self) -> bool:
        """End calling; return whether FREE is to be sent."""
        words = self._words
        if self._turn:
            self._turn = False
            self._turns += 1
            words[_TURNS] = self._turns
        words[_CALLING] = 0
        fence()
        return bool(words[_CLOSED])
