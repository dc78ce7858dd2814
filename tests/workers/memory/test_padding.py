"""The padding of memories on bytes of the user's: zeroed on a stream, in the order of what is executed there."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers.desc import MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.primitives.provider import primitive_provider
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.threads import ThreadsPool
from tests.workers.own_process import python

#: 5 of 8 channels and 3 of 4 rows are elements.
MD = MemoryDesc((2, 5, 3), "f32", "aBC4c8b")
SECONDS = 20.0


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the cache of this process a home of its own for these tests."""
    place = str(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOLRT_HOME", place)
        primitive_provider.cache_clear()
        yield place
    primitive_provider.cache_clear()
    CacheStore.connect(home=place).down()


def is_padded(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bool:
    """Return whether padding is zero and every element is still 7."""
    blocks = values.reshape(2, 4, 8)
    return bool((blocks[:, :3, :5] == 7).all() and np.count_nonzero(blocks) == MD.elements)


def test_padding_is_zeroed_on_a_stream_and_elements_stay() -> None:
    engine = Engine("cpu")
    given = np.full(64, 7, np.float32)
    memory = Memory(MD, engine, given)
    assert (given == 7).all()
    Memory(MD, engine, given, Stream(engine))
    assert is_padded(given)
    other = np.full(64, 7, np.float32)
    memory.set_data_handle(other.ctypes.data, Stream(engine))
    assert is_padded(other)


def test_padding_waits_for_its_turn_on_an_asynchronous_threadpool() -> None:
    engine, attr = Engine("cpu"), StreamAttr("cpu")
    Memory(MD, engine, None, Stream(engine))  # created before, so that nothing but its turn is waited for
    with ThreadsPool(1, asynchronous=True) as pool:
        attr.set_threadpool(pool)
        stream, gate, given = Stream(engine, attr), threading.Event(), np.full(64, 7, np.float32)

        def block(i: int, n: int) -> None:
            gate.wait(SECONDS)

        pool.parallel_for(1, block)
        Memory(MD, engine, given, stream)
        assert (given == 7).all()
        gate.set()
        stream.wait()
        assert is_padded(given)


def test_padding_is_zeroed_on_opencl(device: str, home: str) -> None:
    code = """
        import numpy as np
        from poolrt.workers import Engine, Memory, MemoryDesc, Stream
        md, engine = MemoryDesc((2, 5, 3), "f32", "aBC4c8b"), Engine("opencl")
        import pyopencl as cl  # when the engine has been made: it is the one that decides how
        stream, given = Stream(engine), np.full(64, 7, np.float32)
        memory = Memory(md, engine, given, stream)
        stream.wait()
        print(np.frombuffer(memory.map(), np.float32).tolist())
        memory.unmap()
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffer = cl.Buffer(engine.opencl.context, flags, hostbuf=np.full(64, 7, np.float32))
        memory.set_data_handle(buffer, stream)
        stream.wait()
        cl.enqueue_copy(engine.opencl.queue, given, buffer)
        print(given.tolist())
    """
    for line in python(textwrap.dedent(code)).splitlines():
        values = np.array([float(text) for text in line.strip("[]").split(",")], np.float32)
        assert is_padded(values)


def test_a_stream_on_another_engine_is_refused(device: str, home: str) -> None:
    code = """
        from poolrt.workers import Engine, Memory, MemoryDesc, Stream
        md, engine = MemoryDesc((2, 5, 3), "f32", "aBC4c8b"), Engine("opencl")
        for make in (lambda: Memory(md, Engine("cpu"), None, Stream(engine)),
                     lambda: Memory(md, engine, None, Stream(Engine("opencl")))):
            try:
                make()
            except ValueError as error:
                print(error)
    """
    said = python(textwrap.dedent(code)).splitlines()
    assert len(said) == 2
    assert all(line.startswith("stream: expect one on the engine of Memory(") for line in said)
