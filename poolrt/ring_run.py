"""One run on a ring: its inputs and outputs in slots of this client's, and their return, after errors and interruptions too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from poolrt.errors import ArenaFull, PoolError, PoolRefused
from poolrt.workers.ipc.protocol import Kind

from .loaded_model import LoadedModel
from .ring_runs import ClientRing, RingLost

if TYPE_CHECKING:
    from numpy.typing import NDArray


def run_on_ring(
    ring: ClientRing,
    loaded: LoadedModel,
    arrays: Sequence[NDArray[Any]],
    output_sizes: Sequence[int],
    deadline: float | None = None,
) -> list[int] | None:
    """Run on a ring that this thread has reserved, and release the ring.

    Return the offsets of the outputs, None if the run has to be sent as a message. Raises the run's error, RingLost if a
    worker that has exited may have executed a part of it, and TimeoutError after the deadline.
    """
    try:
        if not loaded.begin_on_ring():
            return None
        try:
            return _run(ring, loaded, arrays, output_sizes, deadline)
        finally:
            loaded.end_on_ring()
    finally:
        ring.reserved.release()


def _run(
    ring: ClientRing,
    loaded: LoadedModel,
    arrays: Sequence[NDArray[Any]],
    output_sizes: Sequence[int],
    deadline: float | None,
) -> list[int] | None:
    memory = loaded.memory
    places = [memory.offset_of(array) if array.flags.c_contiguous else None for array in arrays]
    copied = [number for number, place in enumerate(places) if place is None]
    sizes = [arrays[number].nbytes for number in copied]
    try:
        slots = memory.take(sizes) if sizes else []
    except (ArenaFull, PoolRefused):
        return None  # the coordinator waits for memory, or says why there is none
    outputs: list[int] = []
    try:
        for number, offset in zip(copied, slots, strict=True):
            loaded.input_at(number, offset)[...] = arrays[number]
            places[number] = offset
        outputs = memory.take_outputs(output_sizes)
    except (ArenaFull, PoolRefused):
        _give(loaded, slots, sizes, [], [])
        return None
    except BaseException:
        _give(loaded, slots, sizes, outputs, output_sizes)
        raise
    inputs = [place for place in places if place is not None]
    try:
        executed = ring.run(loaded.client, loaded.number, inputs, outputs, deadline)
    except RingLost as loss:
        _give(loaded, slots, sizes, outputs, output_sizes)
        if loss.begun:
            raise
        return None
    except PoolError:
        _give(loaded, slots, sizes, outputs, output_sizes)
        raise
    except BaseException as error:
        # The worker may be executing it. The arrays are kept, because it may read them.
        kept = [*arrays]

        def free() -> None:
            kept.clear()
            _give(loaded, slots, sizes, outputs, output_sizes)

        ring.abandon(free)
        if isinstance(error, TimeoutError):
            loaded.client.send_nowait([Kind.GIVE_UP, 0, ring.number])
        raise
    _give(loaded, slots, sizes, [], [])
    if not executed:
        _give(loaded, [], [], outputs, output_sizes)
        return None
    return outputs


def _give(
    loaded: LoadedModel,
    slots: Sequence[int],
    sizes: Sequence[int],
    outputs: Sequence[int],
    output_sizes: Sequence[int],
) -> None:
    """Keep slots for later runs."""
    for offset, nbytes in zip(slots, sizes, strict=True):
        loaded.memory.give(offset, nbytes)
    if outputs:
        for offset, nbytes in zip(outputs, output_sizes, strict=True):
            loaded.memory.give_output(offset, nbytes)
