"""Time stamps among the launches of a plan's steps, for verbose lines that are written once the queue has finished."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..verbose.output import verbose
from .opencl_binding import BoundLaunch

if TYPE_CHECKING:
    import pyopencl


class Stamp:
    """A marker that is enqueued like a launch, again in each run."""

    def __init__(self) -> None:
        self.event: pyopencl.Event | None = None

    def enqueue(self, queue: pyopencl.CommandQueue) -> None:
        """Enqueue the marker. Raises pyopencl.Error."""
        import pyopencl as cl

        self.event = cl.enqueue_marker(queue)


class StepStamps:
    """The stamps of all steps of one runner on one queue, whose events know their times."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, Stamp, Stamp]] = []

    def around(self, launches: Sequence[BoundLaunch], text: str | None) -> Sequence[BoundLaunch | Stamp]:
        """Return the launches of a step between two stamps; as they are where no line ``text`` is wanted of it."""
        if text is None:
            return launches
        begin, end = Stamp(), Stamp()
        self._steps.append((text, begin, end))
        return [begin, *launches, end]

    def tell(self) -> None:
        """Write the lines of the run whose stamps have all been reached."""
        for text, begin, end in self._steps:
            if begin.event is not None and end.event is not None:
                verbose().executed(text, end.event.profile.end - begin.event.profile.end)
            begin.event = end.event = None
