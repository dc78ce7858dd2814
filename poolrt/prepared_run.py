"""One run on a ring whose slots, views and entry are prepared: run after run uses it, so that each costs little Python.

Its tensors are small. Its outputs are copied out of their slots, which costs less than to let an array own a slot.
"""

from __future__ import annotations

from _thread import LockType
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from poolrt.workers.ipc.ring import EXECUTED

from .ring_entry import RingEntry
from .run_inputs import Outputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .client_ring import ClientRing
    from .loaded_model import LoadedModel
    from .prepared_runs import PreparedRuns
    from .shared_memory import SharedMemory

#: An input: its name, the view on its slot, its data type and shape.
Port = tuple[str, "NDArray[Any]", Any, tuple[int, ...]]


class PreparedRun:
    """Slots of a client's for one run at a time, which has a place on a ring like a `RingEntry`.

    The lock of its ring protects it from `ClientRing.submit` to its end. Guarantees: its slots are released when nothing refers
    to it; while a worker may write to them, its ring does.
    """

    __slots__ = (
        "_home",
        "_inputs",
        "_memory",
        "_outputs",
        "_slots",
        "_tokens",
        "abandoned",
        "counted",
        "fields",
        "gates",
        "keeper",
        "ring",
        "sequence",
        "status",
    )

    def __init__(
        self,
        memory: SharedMemory,
        ring_fields: tuple[int, int, int],
        slots: Sequence[tuple[int, int]],
        inputs: Sequence[Port],
        outputs: Sequence[tuple[str, NDArray[Any]]],
        tokens: deque[int],
        home: Callable[[], PreparedRuns | None],
    ) -> None:
        """Take the slots of inputs and outputs, with their bytes; ``ring_fields`` are the model and the numbers of both.

        `finish` returns it to its ``home``. At its end it adds one to ``tokens``.
        """
        self._memory = memory
        self._tokens = tokens
        self._home = home
        self._slots = slots
        self._inputs = inputs
        self._outputs = outputs
        #: The words of its entry; its ring sets the first two.
        self.fields = memoryview(array("Q", (0, 0, *ring_fields, 0, *(offset for offset, _ in slots))))
        #: Where it was submitted, and its number there; 0 before.
        self.ring: ClientRing | None = None
        self.sequence = 0
        #: How it has ended; 0 before.
        self.status = 0
        #: Locks that are released at its end: threads wait for them.
        self.gates: list[LockType] = []
        #: The model that it runs, which stays loaded until its end.
        self.keeper: LoadedModel | None = None
        #: Whether its caller waits no longer, and whether its model counts it, because that is closed.
        self.abandoned = False
        self.counted = False

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.status != 0

    def fill(self, inputs: dict[str, Any], kind: Any) -> bool:
        """Copy inputs to their slots; False unless each is an array, of ``kind``, exactly as the model needs it."""
        for name, view, dtype, shape in self._inputs:
            given: Any = inputs.get(name)
            if type(given) is not kind or given.shape != shape or (given.dtype is not dtype and given.dtype != dtype):
                return False
            view[...] = given
        return len(inputs) == len(self._inputs)

    def finish(self) -> Outputs:
        """Return copies of the outputs of a run that was executed, and let it be used again."""
        found = Outputs()
        for name, view in self._outputs:
            found[name] = view.copy()
        self.status = self.sequence = 0
        self.ring = None
        if self.gates:
            self.gates = []
        home = self._home()
        if home is not None and not home.closed:
            home.free.append(self)
        return found

    def end(self, status: int) -> None:
        """Note how it has ended. May be repeated: an interrupt may end the first call."""
        if not self.status:
            self.status = status
            if status == EXECUTED or self.abandoned:
                if self.counted:
                    self.leave_ring()
                self.keeper = None
        if self.gates:
            for gate in self.gates:
                if gate.locked():
                    gate.release()

    def leave_ring(self) -> None:
        """Keep its model loaded no longer: its outputs are there, or have no use. May be repeated."""
        keeper, self.keeper = self.keeper, None
        if self.counted and keeper is not None:
            self.counted = False
            keeper.end_on_ring()

    def abandon(self) -> None:
        """Wait no longer for it. Its slots are released with it, when its ring refers to it no more."""
        self.abandoned = True
        if self.status:
            self.leave_ring()

    def reset(self) -> None:
        """Make it ready for the next run."""
        self.status = self.sequence = 0
        self.ring = None
        if self.gates:
            self.gates = []

    def convert(self, loaded: LoadedModel, arrays: list[NDArray[Any]]) -> RingEntry:
        """Return what a run that has ended without outputs is to the path of all runs; its slots belong to that now."""
        count = len(self._inputs)
        slots, self._slots = self._slots, ()
        entry = RingEntry(loaded, arrays, [offset for offset, _ in slots[:count]], [*slots[:count]], [], [])
        entry.ring, entry.sequence, entry.status = self.ring, self.sequence, self.status
        if not self.counted and not loaded.begin_on_ring():
            entry.leave_ring()  # no end of it counts
        self.counted, self.keeper = False, None
        for offset, _ in slots[count:]:
            self._memory.release(offset)
        return entry

    @property
    def inputs(self) -> list[NDArray[Any]]:
        """The inputs, in their slots."""
        return [view for _, view, _, _ in self._inputs]

    def __del__(self) -> None:
        # A finalizer takes no lock, so no slot is kept for other uses.
        for offset, _ in self._slots:
            self._memory.release(offset)
        self._tokens.append(0)
