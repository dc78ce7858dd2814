"""Resources: made once a mapper for equal primitives, sharing what an engine has realized, and gone with their owner."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers import Eltwise, InnerProduct
from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.resource import Resource
from poolrt.workers.execution.resource_mapper import ResourceMapper
from poolrt.workers.primitives.cached_primitive import CachedPrimitive
from poolrt.workers.streams.stream import Stream
from tests.workers import compiled

from .data import DATA, kinds_reached

MD = MemoryDesc((40,), "f32")


@pytest.fixture
def cached(store: CacheStore) -> CachedPrimitive:
    return compiled.cache(4, store).fetch(Eltwise.PrimitiveDesc(Engine("cpu"), MD, MD, "abs").pd)[0]


def test_equal_primitives_share_one_resource_within_a_mapper(store: CacheStore, cached: CachedPrimitive) -> None:
    engine = Engine("cpu")
    mapper = ResourceMapper(engine)
    # Given an equal primitive that another cache has parsed
    twin = compiled.cache(4, store).fetch(Eltwise.PrimitiveDesc(engine, MD, MD, "abs").pd)[0]
    assert twin is not cached
    assert mapper.get(cached) is mapper.get(twin)
    # Another mapper of the engine shares it; one of another engine has one of its own
    assert ResourceMapper(engine).get(cached) is mapper.get(cached)
    other = ResourceMapper(Engine("cpu")).get(cached)
    assert other is not mapper.get(cached)
    assert owners(other).isdisjoint(owners(mapper.get(cached)))


def test_a_shared_resource_is_released_with_its_last_user(store: CacheStore, cached: CachedPrimitive) -> None:
    engine = Engine("cpu")
    mappers = [ResourceMapper(engine) for _ in range(3)]
    resource = weakref.ref(mappers[0].get(cached))
    assert all(mapper.get(cached) is resource() for mapper in mappers)
    while mappers:
        assert engine.resources.values() == [resource()]
        mappers.pop()
    assert (resource(), engine.resources.values()) == (None, [])
    # The next user has it realized again
    assert ResourceMapper(engine).get(cached).entry is cached.entry


def test_a_resource_that_cannot_be_realized_is_tried_again(cached: CachedPrimitive) -> None:
    engine, failed = Engine("cpu"), MemoryError("no room")

    def fail() -> Resource[Any, Any]:
        raise failed

    with pytest.raises(MemoryError, match="no room"):
        engine.resources.get(cached.identity, fail)
    assert engine.resources.values() == []
    assert ResourceMapper(engine).get(cached).entry is cached.entry


def owners(resource: Resource[Any, Any]) -> set[int]:
    """Return which tables the launches of a resource use."""
    return {id(value[0]) for launch in resource.launches for where, value in launch.args if where == "t"}


def test_nested_primitives_have_their_resources_from_the_mapper_of_the_outer_one(store: CacheStore) -> None:
    engine, cache = Engine("cpu"), compiled.cache(16, store)
    # Given a gradient made of a reorder, a product and a reduction, and the same product on its own
    src, weights, dst = (
        MemoryDesc((4, 3, 5, 5), "f32", "acdb"),
        MemoryDesc((7, 3, 5, 5), "f32"),
        MemoryDesc((4, 7), "f32"),
    )
    outer = InnerProduct.PrimitiveDesc(engine, src, weights, MemoryDesc((7,), "f32"), dst, "backward_weights").pd
    cached = cache.fetch(outer)[0]
    assert len(cached.nested) > 1
    mapper = ResourceMapper(engine)
    inside = owners(mapper.get(cached))
    # Then each nested one is found in the mapper, whichever cache it was parsed by, with the tables that the outer one uses
    for pd, nested in zip(outer.nested(), cached.nested, strict=True):
        twin = compiled.cache(16, store).fetch(pd)[0]
        assert mapper.get(twin) is mapper.get(nested)
        assert owners(mapper.get(nested)) <= inside
    assert inside == set.union(*(owners(mapper.get(nested)) for nested in cached.nested))


def test_a_cached_primitive_is_data_alone_even_while_it_is_executed(store: CacheStore, cached: CachedPrimitive) -> None:
    engine, cache = Engine("cpu"), compiled.cache(16, store)
    src, weights, dst = MemoryDesc((4, 3, 5, 5), "f32"), MemoryDesc((7, 3, 5, 5), "f32"), MemoryDesc((4, 7), "f32")
    iface = InnerProduct.PrimitiveDesc(engine, src, weights, None, dst)
    memories = {arg: Memory(md, engine) for arg, md in iface.pd.memories().items()}
    iface.create(cache).execute(Stream(engine), memories)
    outer = cache.fetch(iface.pd)[0]
    assert outer.nested
    assert kinds_reached(outer) | kinds_reached(cached) <= DATA


def test_threads_that_need_a_resource_at_once_get_one(cached: CachedPrimitive) -> None:
    engine, found = Engine("cpu"), list[Resource[object, object]]()
    mappers = [ResourceMapper(engine) for _ in range(4)]
    meeting = threading.Barrier(8, timeout=30)

    def ask() -> None:
        place = meeting.wait()
        found.append(mappers[place // 2].get(cached))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_resources_end_with_the_primitive_that_a_user_holds(store: CacheStore) -> None:
    cache, engine = compiled.cache(4, store), Engine("cpu")
    primitive = Eltwise.PrimitiveDesc(engine, MD, MD, "abs", attr=PrimitiveAttr()).create(cache)
    primitive.execute(Stream(engine), {Arg.SRC: Memory(MD), Arg.DST: Memory(MD)})
    mapper = weakref.ref(primitive.resources)
    cached = cache.fetch(primitive.pd)[0]
    resource = weakref.ref(primitive.resources.get(cached))
    del primitive
    gc.collect()
    assert (mapper(), resource()) == (None, None)
    assert cache.cache.get_size() == 1
