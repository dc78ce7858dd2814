"""The prepared runs of one model on one connection: made when they are needed, used again and again.

Everything unusual is left to the path of all runs: inputs that must be converted or that an error is about, arrays that are in
shared memory already, rings that are full, paused or not there yet.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from poolrt.errors import ArenaFull, PoolRefused
from poolrt.workers.ipc.ring import EXECUTED, SLOTS_LIMIT

from .prepared_run import PreparedRun
from .run_inputs import Outputs

if TYPE_CHECKING:
    from .loaded_model import LoadedModel
    from .model import TensorSpec

#: Bytes of the largest tensor that is copied: an array that owns its slot costs as much as this copy.
LARGEST: Final = 16 * 1024
#: Prepared runs of one model, and the bytes of their slots; slots are taken for so many at once, at most.
_MOST: Final = 128
_BYTES: Final = 1 << 20
_AT_ONCE: Final = 8


class PreparedRuns:
    """Prepared runs of the model that ``loaded`` is; that refers to this object. Safe for use by several threads."""

    __slots__ = (
        "__weakref__",
        "_inputs",
        "_limit",
        "_results",
        "_sizes",
        "_this",
        "_tokens",
        "client",
        "closed",
        "free",
        "kind",
        "memory",
        "number",
    )

    def __init__(self, loaded: LoadedModel, inputs: Sequence[TensorSpec], results: Sequence[TensorSpec]) -> None:
        self.client = loaded.client
        self.memory = loaded.memory
        self.number = loaded.number
        self._inputs = inputs
        self._results = results
        #: The type of arrays, once NumPy is needed.
        self.kind: type = type(None)
        self._sizes = [spec.nbytes for spec in (*inputs, *results)]
        self.free: deque[PreparedRun] = deque()
        #: One for each that may be made yet.
        self._limit = min(_MOST, _BYTES // max(1, sum(self._sizes)))
        self._tokens = deque(range(self._limit))
        #: Whether its model has been closed: runs are not kept any more.
        self.closed = False
        self._this = weakref.ref(self)
        self.memory.shed.add(self)

    def run(self, loaded: LoadedModel, inputs: dict[str, Any]) -> Outputs | PreparedRun | None:
        """Run and return the outputs; None if it was not begun, or a run that has ended without outputs."""
        client = self.client
        if client.closed:
            return None
        ring = client.rings.find(self.number)
        if ring is None:
            return None
        run = self.take()
        if run is None:
            return None
        if not run.fill(inputs, self.kind):
            self.free.append(run)
            return None
        begun = False
        try:
            begun = ring.perform(run, loaded)
        except BaseException:
            run.abandon()
            ring.withdraw(run)
            raise
        if begun and run.status != EXECUTED:
            return run
        if begun:
            return run.finish()
        self.free.append(run)
        return None

    def take(self) -> PreparedRun | None:
        """Return a run that is not in use, None if there are too many, or memory is short."""
        try:
            return self.free.pop()
        except IndexError:
            return self._make()

    def give(self, run: PreparedRun) -> None:
        """Let a run that has ended, or was not begun, be used again."""
        run.reset()
        self.free.append(run)

    def close(self) -> None:
        """Release the slots of all runs, of those in use at their end."""
        self.closed = True
        self.shed()

    def shed(self) -> int:
        """Release the slots of runs that are not in use; return of how many."""
        found = 0
        try:
            while True:
                self.free.pop()
                found += 1
        except IndexError:
            return found

    def _make(self) -> PreparedRun | None:
        # One for a thread that only runs, more as more are in use at once.
        count = min(_AT_ONCE, len(self._tokens), max(1, self._limit - len(self._tokens)))
        if count < 1:
            return None
        # Slots that other runs have left need no coordinator.
        memory, given, results = self.memory, self._sizes[: len(self._inputs)], self._sizes[len(self._inputs) :]
        inputs: list[int] = []
        taken = False
        try:
            inputs = memory.take(given * count)
            outputs = memory.take_outputs(results * count, ahead=False)
            taken = True
        except (ArenaFull, PoolRefused):
            return None
        finally:
            if not taken:
                for offset in inputs:
                    memory.release(offset)
        import numpy

        self.kind = numpy.ndarray
        made: list[PreparedRun] = []
        for _ in range(count):
            begin, end = len(made) * len(given), len(made) * len(results)
            made.append(self._prepare([*inputs[begin : begin + len(given)], *outputs[end : end + len(results)]]))
        for _ in made:
            if self._tokens:
                self._tokens.pop()
        self.free.extend(made[1:])
        return made[0]

    def _prepare(self, offsets: Sequence[int]) -> PreparedRun:
        views = []
        for spec, offset in zip((*self._inputs, *self._results), offsets, strict=True):
            view = self.memory.bytes_at(offset, spec.nbytes).view(spec.array_dtype).reshape(spec.shape)
            views.append((spec.name, view, view.dtype, spec.shape))
        count = len(self._inputs)
        outputs = [(name, view) for name, view, _, _ in views[count:]]
        fields = self.number, count, len(outputs)
        return PreparedRun(
            self.memory,
            fields,
            [*zip(offsets, self._sizes, strict=True)],
            views[:count],
            outputs,
            self._tokens,
            self._this,
        )


def prepare_runs(
    loaded: LoadedModel, inputs: Sequence[TensorSpec], results: Sequence[TensorSpec]
) -> PreparedRuns | None:
    """Return the prepared runs of a model, None for one with large tensors, or too many."""
    specs = (*inputs, *results)
    if len(specs) > SLOTS_LIMIT or any(spec.nbytes > LARGEST for spec in specs):
        return None
    return PreparedRuns(loaded, inputs, results)
