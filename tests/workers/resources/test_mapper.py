"""Resources: made once a mapper for equal primitives, sharing what an engine has realized, and gone with their owner."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers.desc import Arg, Eltwise, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.engine import Engine
from poolrt.workers.memory.storage import Memory
from poolrt.workers.primitives.cache import PrimitiveCache
from poolrt.workers.primitives.cached_primitive import CachedPrimitive
from poolrt.workers.resources.mapper import ResourceMapper
from poolrt.workers.resources.resource import Resource
from poolrt.workers.streams.stream import Stream

MD = MemoryDesc((40,), "f32")


@pytest.fixture
def cached(store: CacheStore) -> CachedPrimitive:
    return PrimitiveCache(4, store).fetch(Eltwise.PrimitiveDesc(Engine("cpu"), MD, MD, "abs").pd)[0]


def test_equal_primitives_share_one_resource_within_a_mapper(store: CacheStore, cached: CachedPrimitive) -> None:
    engine = Engine("cpu")
    mapper = ResourceMapper(engine)
    # Given an equal primitive that another cache has parsed
    twin = PrimitiveCache(4, store).fetch(Eltwise.PrimitiveDesc(engine, MD, MD, "abs").pd)[0]
    assert twin is not cached
    assert mapper.get(cached) is mapper.get(twin)
    # Another mapper has one of its own, of the same mapped kernels
    other = ResourceMapper(engine).get(cached)
    assert other is not mapper.get(cached)
    assert [launch.kernel for launch in other.launches] == [launch.kernel for launch in mapper.get(cached).launches]


def test_threads_that_need_a_resource_at_once_get_one(cached: CachedPrimitive) -> None:
    mapper, found = ResourceMapper(Engine("cpu")), list[Resource[object, object]]()
    meeting = threading.Barrier(8, timeout=30)

    def ask() -> None:
        meeting.wait()
        found.append(mapper.get(cached))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_resources_end_with_the_primitive_that_a_user_holds(store: CacheStore) -> None:
    cache, engine = PrimitiveCache(4, store), Engine("cpu")
    primitive = Eltwise.PrimitiveDesc(engine, MD, MD, "abs", attr=PrimitiveAttr()).create(cache)
    primitive.execute(Stream(engine), {Arg.SRC: Memory(MD), Arg.DST: Memory(MD)})
    mapper = weakref.ref(primitive.resources)
    cached = cache.fetch(primitive.pd)[0]
    resource = weakref.ref(primitive.resources.get(cached))
    del primitive
    gc.collect()
    assert (mapper(), resource()) == (None, None)
    assert cache.get_size() == 1
