"""The checking pool finds each error that other pools may hide."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.cachestore import CacheStore
from poolrt.workers import Convolution, Eltwise
from poolrt.workers.desc import Arg, MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.native_binding import BoundPrimitive, RealizedPrimitive
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.interface import Region, ThreadpoolInterface
from poolrt.workers.threadpools.jobs import Jobs
from tests.workers import compiled

from .checking import CheckingPool, CheckingStream
from .poison import FreedMemory, poisoned

SIZE = 64


@pytest.fixture
def freed() -> Iterator[FreedMemory]:
    with poisoned() as freed:
        yield freed


@pytest.fixture
def pool() -> Iterator[CheckingPool]:
    with CheckingPool(2, random.SystemRandom().randrange(1 << 32)) as pool:
        yield pool


@pytest.fixture
def doubling(store: CacheStore) -> Primitive:
    """Return a primitive that doubles numbers."""
    md = MemoryDesc((SIZE,), "f32")
    return Eltwise.PrimitiveDesc(Engine("cpu"), md, md, "linear", 2.0).create(compiled.cache(8, store))


def bound(primitive: Primitive, freed: FreedMemory) -> tuple[BoundPrimitive, NDArray[Any], NDArray[Any]]:
    """Return a primitive bound to memory, src, which holds ones, and dst."""
    src, dst = freed.take(4 * SIZE).view(np.float32), freed.take(4 * SIZE).view(np.float32)
    src[:] = 1
    resource = primitive.resources.get(primitive._cached)
    assert isinstance(resource, RealizedPrimitive)
    addresses: dict[int, int | None] = {Arg.SRC: src.ctypes.data, Arg.DST: dst.ctypes.data}
    return BoundPrimitive(resource, addresses, None, Jobs(2)), src, dst


def regions(found: BoundPrimitive, keep: object) -> list[Region]:
    return [Region(block.kernel.address, block.addresses, keep=keep) for block in found.blocks]


def test_a_region_that_keeps_all_it_works_on_is_right(
    pool: CheckingPool, freed: FreedMemory, doubling: Primitive
) -> None:
    found, src, dst = bound(doubling, freed)
    pool.run_regions(regions(found, (found, src)))
    del found, src
    pool.wait()
    assert (dst == 2).all()
    freed.assert_untouched()


def test_a_region_that_does_not_keep_its_argument_blocks_is_found(
    pool: CheckingPool, freed: FreedMemory, doubling: Primitive
) -> None:
    pool.hold_back()
    found, src, dst = bound(doubling, freed)
    pool.run_regions(regions(found, None))
    del found
    pool.wait()
    assert not (dst == 2).any()
    assert (src == 1).all()


def test_a_region_that_does_not_keep_its_source_is_found(
    pool: CheckingPool, freed: FreedMemory, doubling: Primitive
) -> None:
    pool.hold_back()
    found, src, dst = bound(doubling, freed)
    pool.run_regions(regions(found, found))
    del src
    pool.wait()
    assert np.isnan(dst).all()


def test_a_region_that_does_not_keep_its_destination_is_found(
    pool: CheckingPool, freed: FreedMemory, doubling: Primitive
) -> None:
    pool.hold_back()
    found, src, dst = bound(doubling, freed)
    pool.run_regions(regions(found, (found, src)))
    del dst
    pool.wait()
    with pytest.raises(AssertionError, match="wrote to memory that had been freed"):
        freed.assert_untouched()


def test_an_argument_block_that_is_used_again_too_early_is_found(
    pool: CheckingPool, freed: FreedMemory, doubling: Primitive
) -> None:
    pool.hold_back()
    found, src, dst = bound(doubling, freed)
    pool.run_regions(regions(found, (found, src)))
    other = freed.take(4 * SIZE).view(np.float32)
    found.blocks[0].put(1, other.ctypes.data)
    pool.wait()
    assert (dst == 0).all() or (other == 0).all()


def test_the_objects_of_a_region_are_freed_when_it_has_ended(pool: CheckingPool, freed: FreedMemory) -> None:
    given = freed.take(SIZE)
    address = given.ctypes.data

    def task(_i: int, _n: int, given: Any = given) -> None:
        assert (given == 0).all()

    pool.parallel_for(5, task)
    del given, task
    pool.wait()
    assert bytes((ctypes.c_ubyte * SIZE).from_address(address)) == b"\xff" * SIZE


def test_tasks_of_a_region_run_in_random_order() -> None:
    orders = set()
    for seed in range(20):
        with CheckingPool(1, seed) as pool:
            order: list[int] = []
            pool.parallel_for(4, lambda i, _, order=order: order.append(i))  # type: ignore[misc]
            pool.parallel_for(1, inside(pool, order))
            pool.wait()
            orders |= {tuple(order[:4]), tuple(order[4:])}
    assert len(orders) > 10


def inside(pool: ThreadpoolInterface, order: list[int]) -> Callable[[int, int], None]:
    return lambda _i, _n: pool.parallel_for(4, lambda i, _: order.append(i))


def test_scratch_memory_is_no_number_when_a_primitive_begins(pool: CheckingPool, store: CacheStore) -> None:
    # Given a primitive that uses scratch memory, on a stream whose scratch memory another one has written
    engine, cache = Engine("cpu"), compiled.cache(8, store)
    src = MemoryDesc((1, 32, 6, 6), "f32", "aBcd16b")
    pd = Convolution.PrimitiveDesc(
        engine, src, MemoryDesc((32, 32, 3, 3), "f32", "any"), None, src, (1, 1), (0, 0), (1, 1), (1, 1)
    )
    assert pd.query("memory_consumption_s64") > 0
    attr = StreamAttr("cpu")
    attr.set_threadpool(pool)
    seen: list[bool] = []

    class Seeing(CheckingStream):
        """Looks at scratch memory when the primitive's regions are about to begin."""

        __slots__ = ()

        def scratchpad(self, nbytes: int) -> Any:
            scratchpad = super().scratchpad(nbytes)
            self.pool.parallel_for(
                1, lambda _i, _n: seen.append(bool(np.isnan(np.frombuffer(scratchpad.view, np.float32)).all()))
            )
            return scratchpad

    stream: Stream = Seeing(engine, attr)
    memories = {
        arg: Memory(md, engine) for arg, md in ((Arg.SRC, src), (Arg.WEIGHTS, pd.weights_desc()), (Arg.DST, src))
    }
    primitive = pd.create(cache)
    for _ in range(3):
        primitive.execute(stream, memories)
    stream.wait()
    assert seen == [True] * 3
    # Then its result does not depend on those bytes
    assert (np.frombuffer(memories[Arg.DST].map(), np.float32) == 0).all()
