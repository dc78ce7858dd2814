"""The places of one ring for runs of one model: slots, views and entries that are prepared, so that each run costs little Python.

The tensors are small. Outputs are copied out of their slots, which costs less than to let an array own a slot. Everything unusual
is left to the path of all runs.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import count as count_from
from typing import TYPE_CHECKING, Any, Final

from poolrt.workers.ipc.processors import find_processor
from poolrt.workers.ipc.ring import (
    CAPACITY,
    CLIENT_DEFERS,
    DONE,
    HEADS,
    RETURNED,
    STATE,
    SUBMITTED,
)

from .placed_runs import PlacedRun, PlacedRuns
from .run_inputs import Outputs

if TYPE_CHECKING:
    from _thread import LockType
    from typing import TypeAlias

    from numpy.typing import NDArray

    from poolrt.model import TensorSpec

    from .client_ring import ClientRing
    from .loaded_model import LoadedModel
    from .prepared_runs import PreparedRuns

    #: The ring, its lock, words and writers; number, heads, inputs, outputs and held of `PreparedPlaces`. All lists but the last
    #: have `CAPACITY` items.
    Parts: TypeAlias = tuple[
        ClientRing, LockType, memoryview, list[int], int, list[int],
        list[list[tuple[str, NDArray[Any], Any, tuple[int, ...]]]], list[list[tuple[str, NDArray[Any]]]], list[object],
    ]  # fmt: skip

#: Slots start on multiples of this.
_GRAIN: Final = 128
#: A number for all places of this process.
_NUMBERS: Final = count_from(1)
#: What `PreparedPlaces.put` returns for a run that it does not begin: for anything unusual, and if all places are in use.
REFUSED: Final = 0
FULL: Final = -1


def bytes_of(specs: Sequence[TensorSpec]) -> int:
    """Return the bytes of the slots of one place."""
    return sum(_stride(spec.nbytes) for spec in specs)


class PreparedPlaces:
    """``count`` places, a power of two of `CAPACITY` at most, in one slot of the arena, whose offset ``lease`` has.

    Run ``n`` of the ring uses place ``n % count`` for its tensors. The caller that begins a run *owns* the place until its
    outputs are copied. Guarantees: an owner loses no place to another run, and a place is used again only when no worker can
    write to it.
    The slot is released when nothing refers to the places; while a worker may write there, the ring does. Who takes the offset
    out of ``lease`` releases it: an interrupt may leave both these places and what makes them with it.
    """

    __slots__ = (
        "__weakref__",
        "_bodies",
        "_heads",
        "_held",
        "_inputs",
        "_lease",
        "_lock",
        "_memory",
        "_number",
        "_outputs",
        "_room",
        "_writers",
        "client",
        "count",
        "input_count",
        "kind",
        "mask",
        "model",
        "parts",
        "ring",
        "runs",
        "words",
    )

    def __init__(
        self,
        ring: ClientRing,
        prepared: PreparedRuns,
        count: int,
        lease: list[int],
        inputs: Sequence[TensorSpec],
        results: Sequence[TensorSpec],
    ) -> None:
        self._memory = prepared.memory
        self._lease = lease
        import numpy

        (offset,) = lease
        self.ring = ring
        self.model = prepared.number
        self.client = prepared.client
        self.count = count
        self.words = ring.words
        #: The runs that were begun last, None if they have ended.
        self.runs: PlacedRuns | None = None
        self._number = next(_NUMBERS)
        self._lock = ring.lock
        self._writers = ring.writers
        self._heads = [HEADS[(number - 1) % CAPACITY] for number in range(CAPACITY)]
        self.mask = count - 1
        self._held: list[object] = [None] * count
        self.kind: Any = numpy.ndarray
        self.input_count = len(inputs)
        block = self._memory.bytes_at(offset, count * bytes_of((*inputs, *results)))
        #: The inputs of each place: names, views, data types and shapes; names and views of the outputs; the words of its entry.
        self._inputs: list[list[tuple[str, NDArray[Any], Any, tuple[int, ...]]]] = []
        self._outputs: list[list[tuple[str, NDArray[Any]]]] = []
        self._bodies: list[memoryview] = []
        head = ring.number, self.model, len(inputs), len(results), 0
        begin = 0
        for _ in range(count):
            offsets, views = [], []
            for spec in (*inputs, *results):
                views.append(block[begin : begin + spec.nbytes].view(spec.array_dtype).reshape(spec.shape))
                offsets.append(offset + begin)
                begin += _stride(spec.nbytes)
            ports = zip(inputs, views, strict=False)
            self._inputs.append([(spec.name, view, view.dtype, view.shape) for spec, view in ports])
            self._outputs.append([(spec.name, view) for spec, view in zip(results, views[len(inputs) :], strict=True)])
            self._bodies.append(memoryview(array("Q", (*head, *offsets))))
        # By the number of an entry modulo `CAPACITY`, of which there may be more than places.
        for made in (self._inputs, self._outputs, self._bodies):
            made *= CAPACITY // count
        #: The last sequence for which there is room, as far as it is known.
        self._room = 0
        #: What `put`, `copy` and `free` use, for the loop of `map_runs`, which has their steps in one place.
        self.parts: Final[Parts] = (
            ring,
            ring.lock,
            self.words,
            self._writers,
            self._number,
            self._heads,
            self._inputs,
            self._outputs,
            self._held,
        )

    def put(self, inputs: Any, owner: Any, loaded: LoadedModel, leader: PlacedRun | None = None) -> int:
        """Copy inputs and publish a run, without waking the worker; return its sequence, `REFUSED` or `FULL`.

        It sets ``owner.runs``, and makes a ``leader`` lead if no thread waits for the ring. Inputs must be a dict of arrays that
        are exactly what the model needs. After an interrupt, call `abandon`. `PreparedRuns.run` and `map_runs` have these steps.
        """
        if type(inputs) is not dict or len(inputs) != self.input_count:
            return REFUSED
        words, kind, ring = self.words, self.kind, self.ring
        with self._lock:
            sequence: int = words[SUBMITTED] + 1
            index = sequence % CAPACITY
            place = index & self.mask
            if words[STATE] or ring.lost or loaded.closing:
                return REFUSED  # `OPEN` is 0
            if sequence > self._room:
                self._room = words[DONE] + self.count
            if sequence > self._room or self._held[place] is not None:
                return FULL
            for name, view, dtype, shape in self._inputs[index]:
                given: Any = inputs.get(name)
                if (
                    type(given) is not kind
                    or given.shape != shape
                    or (given.dtype is not dtype and given.dtype != dtype)
                ):
                    return REFUSED
                view[...] = given
            runs = self.runs
            if runs is None or ring.newest is not runs:
                runs = self.begin(sequence)
            runs.sequence = sequence
            owner.runs = runs
            self._held[place] = owner
            if self._writers[index] != self._number:
                self.write(index)
            words[self._heads[index]] = sequence
            words[SUBMITTED] = sequence
            if leader is not None and not ring.leading:
                ring.leading = leader.leads = True
        return sequence

    def is_held(self, sequence: int) -> bool:
        """Return whether an owner has not taken the outputs of a run."""
        return self._held[sequence & self.mask] is not None

    def owner_of(self, sequence: int) -> object:
        """Return the owner of the place of a run."""
        return self._held[sequence & self.mask]

    def copy(self, sequence: int) -> Outputs:
        """Return copies of the outputs of a run that was executed."""
        found = Outputs()
        for name, view in self._outputs[sequence % CAPACITY]:
            found[name] = view.copy()
        return found

    def free(self, sequence: int) -> None:
        """Let the place of a run that was executed be used again."""
        self._held[sequence & self.mask] = None

    def inputs_of(self, sequence: int) -> list[NDArray[Any]]:
        """Return copies of the inputs of a run."""
        return [view.copy() for _, view, _, _ in self._inputs[sequence % CAPACITY]]

    def defer(self) -> None:
        """Ask the worker to look again by itself for some milliseconds, because bells are deferred, and to sleep elsewhere."""
        count = (self.words[CLIENT_DEFERS] + 1) & 0xFFFFFFFF
        self.words[CLIENT_DEFERS] = find_processor() << 32 | count

    def withdraw(self, run: PlacedRun) -> bool:
        """Withdraw a run; return whether no worker has executed it or ever will."""
        with self._lock:
            self.ring.reap()
            if not run.status and self.ring.withdraw_at(run.sequence):
                run.note_withdrawn()
            return run.status == RETURNED

    def abandon(self, owner: object, runs: PlacedRuns | None, first: int, last: int, loaded: LoadedModel) -> bool:
        """Withdraw the runs of an owner that waits no longer, and let its places be used again; False if one has begun."""
        with self._lock:
            self.ring.trim()
            self.ring.reap()
            held, whole = self._held, True
            if runs is None and owner in held and self.runs is not None:
                self.runs.keeper = loaded  # a run was published, but an interrupt has kept it from being noted
            for sequence in range(first, last + 1):
                if runs is not None and not runs.status_of(sequence):
                    whole = self.ring.withdraw_at(sequence) and whole
            if runs is not None and not runs.status:
                if whole and last == runs.sequence and self.words[DONE] >= first - 1:
                    self.ring.drop(runs)  # no worker writes to any of them
                else:
                    runs.keeper = loaded  # until all have ended
            for place, each in enumerate(held):
                if each is owner:
                    held[place] = None
            if runs is not None and runs.counted:
                runs.leave_ring()
            return whole

    def release(self, sequence: int, runs: PlacedRuns) -> None:
        """Let the place of a run that has ended be used again, and its model be unloaded if it was the last one."""
        with self._lock:
            self.free(sequence)
            runs.leave_ring()

    def begin(self, sequence: int) -> PlacedRuns:
        """Begin runs that follow something else on the ring, with the lock held."""
        ring = self.ring
        ring.trim()
        ring.reap()
        runs = PlacedRuns(self, sequence)
        ring.under_way.append(runs)
        self.runs = ring.newest = runs
        return runs

    def write(self, index: int) -> None:
        """Write all of an entry except its sequence, with the lock held."""
        body, begin = self._bodies[index], self._heads[index] + 1
        self._writers[index] = 0
        self.words[begin : begin + len(body)] = body
        self._writers[index] = self._number

    def __del__(self) -> None:
        # A finalizer takes no lock, so the slot is not kept for other uses. There is no lease before the first lines.
        lease = getattr(self, "_lease", None)
        if lease:
            self._memory.release_at_once(lease.pop())


def _stride(nbytes: int) -> int:
    return max(1, -(-nbytes // _GRAIN)) * _GRAIN
