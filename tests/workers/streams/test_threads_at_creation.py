"""The number of threads is read when a primitive is described through a stream, and honoured on every other stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers import Eltwise, Reduction, Reorder
from poolrt.workers.desc import Arg, MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive_desc_iface import PrimitiveDescIface
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.interface import ThreadpoolInterface
from poolrt.workers.threadpools.threads import ThreadsPool
from tests.workers import compiled
from tests.workers.threadpools.checking import CheckingPool

SIZE = 100_003
SRC, DST = MemoryDesc((SIZE,), "f32"), MemoryDesc((1,), "f32")


@dataclass
class Node:
    """An engine, a cache of its process, and streams on pools of two kinds by their number of threads."""

    engine: Engine
    cache: PrimitiveProvider
    streams: dict[int, tuple[Stream, Stream]]

    def described(self, stream: Stream | None) -> PrimitiveDescIface:
        """Describe a reduction that is divided by threads."""
        return Reduction.PrimitiveDesc(self.engine, SRC, DST, "sum", stream=stream)


@pytest.fixture
def node(store: CacheStore) -> Iterator[Node]:
    engine = Engine("cpu")
    with ExitStack() as opened:

        def stream(pool: ThreadpoolInterface) -> Stream:
            attr = StreamAttr("cpu")
            attr.set_threadpool(pool)
            return Stream(engine, attr)

        streams = {
            n: (
                stream(opened.enter_context(ThreadsPool(n))),
                stream(opened.enter_context(CheckingPool(n))),
            )
            for n in (1, 2, 3)
        }
        yield Node(engine, compiled.cache(64, store), streams)


def test_a_primitive_is_a_hit_through_another_stream_of_as_many_threads(node: Node) -> None:
    # Given a primitive that was created through one stream
    one, other = node.streams[2]
    node.described(one).create(node.cache)
    # When it is asked for through a stream on another pool of as many threads
    again = node.described(other).create(node.cache)
    # Then it is found
    assert again.source == "memory"
    # And through one of another number of threads it is another
    third = node.described(node.streams[3][0]).create(node.cache)
    assert third.source != "memory"
    assert primitive_key(third.pd).digest != primitive_key(again.pd).digest
    assert third.pd.target.threads == 3
    assert again.pd.target.threads == 2


def test_what_does_not_depend_on_threads_is_one_primitive_for_all_streams(node: Node) -> None:
    described = [
        Eltwise.PrimitiveDesc(node.engine, SRC, SRC, "relu", stream=stream)
        for streams in node.streams.values()
        for stream in streams
    ]
    assert len({primitive_key(each.pd).digest for each in described}) == 1
    first, *others = [each.create(node.cache).source for each in described]
    assert set(others) == {"memory"}, first


def test_without_a_stream_a_primitive_is_made_for_one_thread(node: Node) -> None:
    keys = {primitive_key(node.described(stream).pd).digest for stream in (None, *node.streams[1])}
    assert len(keys) == 1


def test_the_number_at_creation_is_honoured_on_pools_of_any_number(node: Node) -> None:
    values = np.random.default_rng().standard_normal(SIZE).astype(np.float32)
    found: dict[int, set[bytes]] = {}
    for n, (made_through, _) in node.streams.items():
        pd = node.described(made_through)
        assert pd.query("memory_consumption_s64") == (4 * n if n > 1 else 0)
        primitive = pd.create(node.cache)
        for streams in node.streams.values():
            for stream in streams:
                src, dst = Memory(SRC, node.engine), Memory(DST, node.engine)
                src.numpy()[:] = values
                primitive.execute(stream, {Arg.SRC: src, Arg.DST: dst})
                stream.wait()
                found.setdefault(n, set()).add(dst.numpy().tobytes())
                np.testing.assert_allclose(dst.numpy(), [values.sum(dtype=np.float64)], atol=1e-2)
    # The same parts are added up in the same order wherever a primitive runs
    assert {n: len(results) for n, results in found.items()} == {1: 1, 2: 1, 3: 1}


def test_a_stream_that_is_none_or_on_another_engine_is_refused(node: Node) -> None:
    with pytest.raises(TypeError, match="stream: expect a Stream, got int"):
        Reduction.PrimitiveDesc(node.engine, SRC, DST, "sum", stream=2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="stream: expect one on"):
        Reorder.PrimitiveDesc(Engine("cpu"), SRC, SRC, stream=node.streams[2][0])
