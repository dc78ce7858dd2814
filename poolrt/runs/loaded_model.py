"""A model as one connection has it: its number there, its input slots, and how many of its runs are in flight."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from poolrt.connection.client import Client
from poolrt.connection.link import Link
from poolrt.errors import ArenaFull
from poolrt.workers.ipc.protocol import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.model import TensorSpec

    from .memory_wait import MemoryWait
    from .prepared_runs import PreparedRuns
    from .submitted_run import FuturePace

#: Views on input slots that one model keeps.
_VIEWS: Final = 512
#: More than the runs on rings of one model.
_COUNTING: Final = 1 << 30


class LoadedModel:
    """Model ``number`` of a connection, unloaded when it is dropped or closed. Runs in flight refer to it."""

    def __init__(self, link: Link, number: int, inputs: Sequence[TensorSpec]) -> None:
        self.link = link
        self.client = link.client
        self.memory = link.memory
        self.number = number
        #: Runs in flight.
        self.running = 0
        self._inputs = inputs
        self._input_views: dict[tuple[int, int], NDArray[Any]] = {}
        self._counting = threading.Lock()
        self._on_rings = 0
        self.closing = False
        #: None if its tensors are too large for prepared runs, or too many.
        self.prepared: PreparedRuns | None = None
        #: The pace of its futures, once there is one.
        self.pace: FuturePace | None = None
        self._unload = weakref.finalize(self, _unload, link.client, number)
        self._unload.atexit = False

    @property
    def closed(self) -> bool:
        """Whether it has been unloaded."""
        return self.closing or not self._unload.alive

    def close(self) -> None:
        """Unload it. Runs in flight end as usual. May be repeated."""
        futures = self.client.open_futures
        self.client.abandoned.cancel()
        futures.resolve_ended()  # those that no thread waits for keep it loaded
        self.closing = True
        # A ring publishes none from now on. Those that were published are counted, and none that ends meanwhile is the last.
        with self._counting:
            self._on_rings += _COUNTING
        under_way = self.client.rings.count_runs(self)
        with self._counting:
            self._on_rings += under_way - _COUNTING
            busy = self._on_rings > 0
        if not busy:
            self._unload()
        futures.want_all()
        self.pace = None  # it refers to places
        if self.prepared is not None:
            self.prepared.close()

    def begin_on_ring(self, *, is_kept: bool = False) -> bool:
        """Note that a run on a ring begins, which the coordinator does not see; False if the model has been closed.

        One that ``is_kept`` loaded by something that has begun before takes it nevertheless.
        """
        with self._counting:
            begins = is_kept or not self.closing
            self._on_rings += begins
            return begins

    def end_on_ring(self) -> None:
        """Note that a run on a ring has ended; the last one after `close` unloads the model."""
        with self._counting:
            self._on_rings -= 1
            last = self.closing and not self._on_rings
        if last:
            self._unload()

    def input_at(self, number: int, offset: int) -> NDArray[Any]:
        """Return a view on a slot as input ``number``; views are kept, because slots are used again and again."""
        view = self._input_views.get((number, offset))
        if view is None:
            if len(self._input_views) >= _VIEWS:
                self._input_views.clear()
            spec = self._inputs[number]
            view = self.memory.bytes_at(offset, spec.nbytes).view(spec.array_dtype).reshape(spec.shape)
            self._input_views[number, offset] = view
        return view

    def has_running(self, count: int) -> bool:
        """Return whether at least so many runs are in flight."""
        return self.running >= count

    def count(self, difference: int) -> None:
        """Note that a run has begun (1) or ended (-1)."""
        with self._counting:
            self.running += difference

    def take_slots(self, sizes: list[int], wait: MemoryWait) -> list[int]:
        """Return slots for inputs; if memory is short, wait for runs in flight first. Raises ArenaFull, and TimeoutError."""
        while True:
            wait.look(self)
            try:
                return self.memory.take(sizes)
            except ArenaFull:
                if not wait.has_passed(self):
                    raise


def _unload(client: Client, number: int) -> None:
    """Unload a model. Runs in finalizers, so it must not wait, nor fail for a closed pool."""
    client.send_nowait([Kind.UNLOAD, number])
