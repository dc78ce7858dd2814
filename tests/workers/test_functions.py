"""Functions in a worker, without the worker."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator

import cloudpickle
import msgpack
import pytest

from poolrt.memory.arena import make_arena
from poolrt.workers.ipc.channel import Channel, pair
from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.memory.arena_view import ArenaView
from poolrt.workers.processes.call_memory import CallMemory
from poolrt.workers.processes.functions import Functions
from poolrt.workers.processes.pickled import load_result
from poolrt.workers.processes.result_slots import ResultSlots


@pytest.fixture
def arena() -> Iterator[int]:
    """The memory of an arena, as a descriptor."""
    fd = make_arena(1 << 20)
    yield fd
    os.close(fd)


def test_a_long_argument_is_copied_once_when_it_is_loaded(arena: int) -> None:
    size = 8_000_000
    payload = msgpack.packb([["/"], cloudpickle.dumps((len, (b"x" * size,), {}))])
    ours, theirs = pair()
    channel = Channel(ours)
    functions = Functions(CallMemory(ResultSlots(channel, channel.send, ArenaView(arena)), arena))
    functions.apply([Kind.APPLY, 1, 1, 0, msgpack.packb([[], cloudpickle.dumps((len, ("",), {}))])])  # imports modules
    tracemalloc.start()
    try:
        answer = functions.apply([Kind.APPLY, 1, 1, 0, payload])
        assert tracemalloc.get_traced_memory()[1] < 1.25 * size
    finally:
        tracemalloc.stop()
    assert answer[0] == Kind.ANSWER
    assert load_result(answer[3]) == size
    channel.close()
    theirs.close()
