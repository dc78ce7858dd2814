"""Runs on rings: inputs and outputs in slots of this client's, and their return, after errors and interruptions too."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from poolrt.errors import ArenaFull, PoolRefused
from poolrt.workers.ipc.ring import EXECUTED, FAILED, RETURNED

from .loaded_model import LoadedModel
from .memory_wait import MemoryWait
from .ring_entry import LOST, RingEntry
from .ring_runs import RingLost, take_error

if TYPE_CHECKING:
    from numpy.typing import NDArray


def begin_on_ring(
    loaded: LoadedModel, arrays: list[NDArray[Any]], output_sizes: Sequence[int], wait: MemoryWait
) -> RingEntry | None:
    """Submit a run on a ring, and replace the arrays that are copied by their copies; None if it has to be sent as a message.

    If memory is short, runs in flight end first. Raises ArenaFull, and TimeoutError.
    """
    if loaded.client.rings.is_glance_due():
        loaded.client.glance()
    copies: list[tuple[int, NDArray[Any]]] = []
    entry = None
    is_prepared = False
    while not is_prepared:
        wait.look(loaded)
        try:
            entry = _prepare_entry(loaded, arrays, output_sizes, copies)
            is_prepared = True
        except ArenaFull:
            # It holds no slot meanwhile: two runs that each held a part of what they need would wait for each other.
            if not wait.has_passed(loaded):
                raise
            copies.clear()
    if entry is None:
        return None
    try:
        ring = loaded.client.rings.submit(entry)
        if ring is None:
            entry.abandon()
            entry.end(RETURNED)
            return None
        ring.tell(loaded.client, perf_counter_ns())
    except BaseException:
        leave_entry(loaded, entry, timed_out=False)
        raise
    for number, copy in copies:
        arrays[number] = copy
    return entry


def outputs_of(loaded: LoadedModel, entry: RingEntry) -> Sequence[int] | None:
    """Return the offsets of the outputs of an entry that has ended, None if the run has to be sent as a message.

    Raises the run's error, and RingLost if a worker that has exited may have executed a part of it.
    """
    if entry.status == EXECUTED:
        return entry.outputs
    ring = entry.ring
    if ring is not None and entry.status == LOST:
        raise RingLost(ring.number)
    if ring is not None and entry.status == FAILED:
        error = take_error(ring, entry.sequence, loaded.client)
        if error is not None:
            entry.abandon()
            raise error
    return None


def leave_entry(loaded: LoadedModel, entry: RingEntry, *, timed_out: bool) -> None:
    """Withdraw an entry whose caller waits no longer, or let it end; its slots are free when no worker can write to them."""
    ring = entry.ring
    if ring is None:
        entry.abandon()
        entry.end(RETURNED)
        return
    ring.abandon(entry)
    if not ring.withdraw(entry) and timed_out and not entry.status:
        ring.give_up(entry.sequence, loaded.client)


def _prepare_entry(
    loaded: LoadedModel,
    arrays: list[NDArray[Any]],
    output_sizes: Sequence[int],
    copies: list[tuple[int, NDArray[Any]]],
) -> RingEntry | None:
    """Return a run with its slots, its inputs copied there, added to ``copies``; None if it has to be sent as a message.

    Raises ArenaFull.
    """
    if not loaded.client.rings.has_room(loaded.number) or not loaded.begin_on_ring():
        return None
    memory = loaded.memory
    slots: list[int] = []
    outputs: list[int] = []
    sizes: list[int] = []
    whole = False
    try:
        places = [memory.offset_of(array) if array.flags.c_contiguous else None for array in arrays]
        copied = [number for number, place in enumerate(places) if place is None]
        sizes = [arrays[number].nbytes for number in copied]
        slots = memory.take(sizes) if sizes else []
        for number, offset in zip(copied, slots, strict=True):
            view = loaded.input_at(number, offset)
            view[...] = arrays[number]
            copies.append((number, view))
            places[number] = offset
        outputs = memory.take_outputs(output_sizes)
        inputs = [place for place in places if place is not None]
        entry = RingEntry(loaded, arrays, inputs, [*zip(slots, sizes, strict=True)], outputs, output_sizes)
        whole = True
        return entry
    except PoolRefused:
        return None  # the coordinator says why
    finally:
        if not whole:
            for offset, nbytes in zip(slots, sizes, strict=False):
                memory.give(offset, nbytes)
            for offset, nbytes in zip(outputs, output_sizes, strict=False):
                memory.give_output(offset, nbytes)
            loaded.end_on_ring()
