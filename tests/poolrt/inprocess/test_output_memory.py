"""Memory of outputs is used again when nothing refers to it any more, never before, and within a bound."""

from __future__ import annotations

import gc
import random
import sys
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
import pytest

from poolrt import DeviceContext, Executor, Graph
from poolrt.inprocess.output_memory import OutputMemory
from poolrt.workers.memory.array_address import address_of
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.at_lines import at_each_line

from .networks import Array, array

F32 = np.dtype(np.float32)
BOUND_S = 60.0


def take(memory: OutputMemory, *shape: int) -> tuple[Array, int]:
    return memory.take(shape, F32, 4 * int(np.prod(shape)))


def test_dropped_memory_is_used_again_and_begins_a_cache_line() -> None:
    memory = OutputMemory(1 << 20)
    first, address = take(memory, 3, 5)
    assert (first.shape, first.dtype, address) == ((3, 5), F32, first.ctypes.data)
    assert address % 64 == 0
    del first
    again, same = take(memory, 3, 5)
    assert same == address
    another, other = take(memory, 5, 3)
    assert other != address
    del again, another
    assert {take(memory, 15)[1], take(memory, 15)[1]} <= {address, other}


@pytest.mark.parametrize("keep", ["view", "memoryview", "transposed", "flat", "reshaped"])
def test_memory_that_anything_refers_to_is_not_used_again(keep: str) -> None:
    memory = OutputMemory(1 << 20)
    output, address = take(memory, 4, 6)
    output[...] = 1
    kept: dict[str, object] = {
        "view": output[1:, ::2], "memoryview": output.data, "transposed": output.T, "flat": output.flat,
        "reshaped": output.reshape(2, 12),
    }  # fmt: skip
    held = kept.pop(keep)
    kept.clear()
    del output
    gc.collect()
    for _ in range(10):
        fresh, place = take(memory, 4, 6)
        fresh[...] = 2
        assert place != address
    assert np.all(np.asarray(held) == 1)
    del held
    assert address in [take(memory, 4, 6)[1] for _ in range(2)]


def test_memory_stays_within_its_bound() -> None:
    memory = OutputMemory(100_000)
    for count in range(1000, 12_000, 7):
        take(memory, count)
        assert memory.nbytes <= 100_000
    held = [take(memory, 10)[0] for _ in range(50)]
    assert len({address_of(output) for output in held}) == 50
    assert memory.nbytes <= 100_000
    assert take(memory, 20_000)[0].size == 20_000
    memory.set_capacity(0)
    assert memory.nbytes == 0


def test_a_run_of_many_outputs_of_one_size_finds_memory_while_the_last_ones_are_held() -> None:
    memory = OutputMemory(1 << 20)
    last, found = [], []
    for _ in range(4):
        held = [take(memory, 64) for _ in range(12)]
        found.append({address for _, address in held})
        last = held
        del held
    assert found[2] == found[0]
    assert found[3] == found[1]
    assert not found[0] & found[1]
    del last
    nbytes = memory.nbytes
    held = [take(memory, 64) for _ in range(100)]
    assert len({address for _, address in held}) == 100
    assert memory.nbytes < 100 * 4 * 64
    assert nbytes <= memory.nbytes


def test_one_output_that_needs_nearly_all_the_capacity_is_kept_and_no_second_one() -> None:
    memory = OutputMemory(12_000)
    address = take(memory, 2000)[1]
    first, same = take(memory, 2000)
    assert same == address
    take(memory, 2000)
    assert 8000 < memory.nbytes <= 12_000
    del first
    assert take(memory, 2000)[1] == address


def test_many_outputs_of_one_size_leave_half_of_the_capacity_to_others() -> None:
    memory = OutputMemory(1 << 20)
    take(memory, 100)
    small = memory.nbytes
    for count in (10_000, 30_000):
        held = [take(memory, count) for _ in range(20)]
        assert small < memory.nbytes <= 1 << 20
        del held


def test_the_size_that_was_used_least_recently_is_dropped_first() -> None:
    memory = OutputMemory(12_000)
    first = take(memory, 1000)[1]
    small = memory.nbytes
    take(memory, 1100)
    # When the size that came first is used again, and a third one needs room
    assert take(memory, 1000)[1] == first
    held = take(memory, 1200)
    # Then the second is gone
    assert memory.nbytes < small + 2 * held[0].nbytes
    kept = memory.nbytes
    assert (take(memory, 1000)[1], memory.nbytes) == (first, kept)


def test_a_context_bounds_the_memory_of_outputs_by_its_own() -> None:
    context = DeviceContext(capacity_bytes=1 << 20)
    for count in range(100, 10_000, 100):
        take(context.output_memory, count)
    assert 0 < context.output_memory.nbytes <= (1 << 20) // 8
    context.set_capacity(capacity_bytes=3200)
    assert context.output_memory.nbytes <= 3200 // 8


def test_threads_never_get_memory_that_another_holds(cache: PrimitiveProvider) -> None:
    graph = Graph("doubling")
    graph.output("y", graph.eltwise(graph.input("x", (64,), "float32"), "linear", alpha=2.0))
    executor = Executor(graph, context=DeviceContext(shared=True), cache=cache)

    def run(seed: int) -> bool:
        x, kept = array(64, seed=seed), []
        for number in range(200):
            kept.append((number, executor.run(x=x + number)["y"]))
            del kept[: -1 - number % 3]
            if not all(np.array_equal(y, 2 * (x + n)) for n, y in kept):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(4), timeout=BOUND_S))


def test_arrays_that_threads_take_side_by_side_are_apart_and_in_their_own_shape() -> None:
    # Too little for all sizes at once
    memory = OutputMemory(2000)
    shapes = (6, 8), (48,), (2, 24), (50,), (70,)
    held: dict[int, int] = {}

    def take_and_drop(seed: int) -> bool:
        rng = random.Random(seed)
        for _ in range(3000):
            shape = shapes[rng.randrange(len(shapes))]
            output, address = take(memory, *shape)
            # Of two threads at one address, the second finds the first's number, or the first the second's.
            mine = held.setdefault(address, seed) == seed
            output[...] = seed
            if not (mine and output.shape == shape and output.ctypes.data == address and np.all(output == seed)):
                return False
            del held[address], output
        return True

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(take_and_drop, range(4), timeout=BOUND_S))
    finally:
        sys.setswitchinterval(before)


def test_an_array_that_another_thread_takes_between_any_two_lines_is_apart() -> None:
    others: list[Future[tuple[Array, int]]] = []
    memory = OutputMemory(2000)

    def take_beside() -> None:
        others.append(pool.submit(take, memory, 6, 8))
        # It waits longer only if it waits for the lock, until this thread is through.
        wait(others, timeout=0.05)

    def take_both() -> None:
        mine, address = take(memory, 6, 8)
        for each in others:
            assert address == mine.ctypes.data != each.result(BOUND_S)[1]
        others.clear()
        renew()

    def renew() -> None:
        nonlocal memory
        memory = OutputMemory(2000)
        for _ in range(kept):
            take(memory, 6, 8)

    with ThreadPoolExecutor(1) as pool:
        for kept in (0, 1):  # noqa: B007 - `renew` reads it
            renew()
            assert at_each_line(take_both, take_beside, "inprocess/output_memory.py") > 3


def test_the_address_is_that_of_the_first_element() -> None:
    whole = array(6, 7)
    frozen = whole.copy()
    frozen.flags.writeable = False
    for each in (whole, whole[1:, 3:], whole.T, whole[::-1], frozen, np.zeros(())):
        assert address_of(each) == each.ctypes.data
