"""One run on a ring: its slots, until no worker can write to them, and how it has ended."""

from __future__ import annotations

from _thread import LockType
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from poolrt.workers.ipc.ring import EXECUTED, RETURNED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .client_ring import ClientRing
    from .loaded_model import LoadedModel

#: Status of an entry whose worker has exited and may have executed a part of it; the others are those of rings.
LOST: Final = 4


class RingEntry:
    """A run of a model. ``borrowed`` are the slots of copied inputs with their bytes; ``arrays`` are kept until its end.

    The lock of its ring protects it from `ClientRing.submit` on. Slots are kept for later runs at its end: those of inputs if
    it was executed, else its caller may send them again; those of outputs unless it was executed. `abandon` frees the rest.
    """

    __slots__ = (
        "_abandoned",
        "_arrays",
        "_counted",
        "_loaded",
        "_output_sizes",
        "borrowed",
        "gates",
        "inputs",
        "model",
        "outputs",
        "ring",
        "sequence",
        "status",
    )

    def __init__(
        self,
        loaded: LoadedModel,
        arrays: Sequence[NDArray[Any]],
        inputs: Sequence[int],
        borrowed: list[tuple[int, int]],
        outputs: Sequence[int],
        output_sizes: Sequence[int],
    ) -> None:
        self.model = loaded.number
        self.inputs = inputs
        self.outputs = outputs
        #: Where it was submitted, and its number there; 0 before.
        self.ring: ClientRing | None = None
        self.sequence = 0
        #: How it has ended; 0 before.
        self.status = 0
        #: Locks that are released at its end: threads wait for them.
        self.gates: list[LockType] = []
        self._loaded = loaded
        self._arrays = arrays
        self.borrowed = borrowed
        self._output_sizes = output_sizes
        self._abandoned = False
        self._counted = True

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.status != 0

    def end(self, status: int) -> None:
        """Note how it has ended. May be repeated: an interrupt may end the first call."""
        if not self.status:
            self.status = status
            self._free()
        for gate in self.gates:
            if gate.locked():
                gate.release()

    def lose(self, taken: int) -> None:
        """Note the exit of the worker, which had taken so many entries."""
        self.end(LOST if self.sequence <= taken else RETURNED)

    def unpublish(self, submitted: int) -> bool:
        """End an entry that was not submitted, because an interrupt came before."""
        self.end(RETURNED)
        return True

    def note_done(self) -> None:
        """Do nothing: it has not ended."""

    def count_for(self, loaded: LoadedModel) -> bool:
        """Return False: its model has counted it when it began."""
        return False

    def abandon(self) -> None:
        """Keep the remaining slots for later runs as soon as it has ended: its caller waits no longer."""
        if not self._abandoned:
            self._abandoned = True
            if self.status == EXECUTED:
                self._give_outputs()
            elif self.status:
                self._give_inputs()

    def leave_ring(self) -> None:
        """Count it no longer as a run on a ring, which keeps its model loaded. May be repeated."""
        if self._counted:
            self._counted = False
            self._loaded.end_on_ring()

    def take_inputs(self) -> list[tuple[int, int]]:
        """Return the slots of copied inputs with their bytes, which are the caller's then. It was not executed."""
        borrowed, self.borrowed = self.borrowed, []
        return borrowed

    def _free(self) -> None:
        if self._abandoned or self.status == EXECUTED:
            self._give_inputs()
        if self._abandoned or self.status != EXECUTED:
            self._give_outputs()

    def _give_inputs(self) -> None:
        self._arrays = ()
        self.leave_ring()
        for offset, nbytes in self.take_inputs():
            self._loaded.memory.give(offset, nbytes)

    def _give_outputs(self) -> None:
        for offset, nbytes in zip(self.outputs, self._output_sizes, strict=True):
            self._loaded.memory.give_output(offset, nbytes)
