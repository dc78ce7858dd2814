"""Streams and their attributes: made for a kind of engine, readable, and not to be changed afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from poolrt.workers.engines.engine import Engine
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.interface import ThreadpoolInterface
from poolrt.workers.threadpools.sequential import SequentialPool
from poolrt.workers.threadpools.threads import ThreadsPool
from tests.workers.own_process import python
from tests.workers.threadpools.kinds import OwnPool


def test_a_stream_computes_on_the_calling_thread_by_default() -> None:
    stream = Stream(Engine("cpu"))
    assert isinstance(stream.pool, SequentialPool)
    assert stream.attr.get_threadpool() is None
    assert stream.attr.kind == "cpu"
    stream.wait()


def test_a_stream_tells_its_attributes_and_keeps_them() -> None:
    with ThreadsPool(2) as pool, ThreadsPool(2) as other:
        attr = StreamAttr("cpu")
        attr.set_threadpool(pool)
        stream = Stream(Engine("cpu"), attr)
        # When the attributes that it was made with, or those that it tells, are changed
        attr.set_threadpool(other)
        stream.attr.set_threadpool(None)
        # Then the stream stays as it is
        assert stream.attr.get_threadpool() is stream.pool is pool
        with pytest.raises(AttributeError):
            stream.attr = attr  # type: ignore[misc]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: StreamAttr("gpu"), ValueError, "kind: unknown engine kind 'gpu'"),
        (lambda: StreamAttr("opencl").set_threadpool(None), ValueError, "threadpool: only streams of kind cpu"),
        (lambda: StreamAttr("opencl").get_threadpool(), ValueError, "threadpool: only streams of kind cpu"),
        (lambda: StreamAttr("cpu").set_threadpool(4), TypeError, "threadpool: expect a ThreadpoolInterface, got int"),  # type: ignore[arg-type]
        (lambda: Stream("cpu"), TypeError, "engine: expect an Engine, got str"),  # type: ignore[arg-type]
        (lambda: Stream(Engine("cpu"), StreamAttr("opencl")), ValueError, "attr: made for engines of kind opencl"),
        (lambda: Stream(Engine("cpu"), "cpu"), TypeError, "attr: expect a StreamAttr, got str"),  # type: ignore[arg-type]
        (lambda: Stream(Engine("cpu")).queue, ValueError, "stream: expect one on an engine of kind opencl"),
    ],
    ids=["kind", "set on opencl", "get on opencl", "no pool", "no engine", "attr of another kind", "no attr", "queue"],
)  # fmt: skip
def test_errors_name_the_argument(wrong: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrong()


@pytest.mark.parametrize(
    ("method", "returned", "error", "message"),
    [
        ("get_num_threads", 0, ValueError, r"Wrong.get_num_threads\(\) must be at least 1, got 0"),
        ("get_num_threads", None, TypeError, r"Wrong.get_num_threads\(\) must return an int, got None"),
        ("get_num_threads", 2.0, TypeError, r"Wrong.get_num_threads\(\) must return an int, got 2.0"),
        ("get_flags", None, TypeError, r"Wrong.get_flags\(\) must return an int, got None"),
        ("get_flags", 10, ValueError, r"Wrong.get_flags\(\) has unknown flags: 0xa"),
        ("get_flags", ThreadpoolInterface.ASYNCHRONOUS, TypeError, r"Wrong is asynchronous and must have a method wait\(\)"),
    ],
)  # fmt: skip
def test_a_threadpool_that_tells_nonsense_is_refused_by_name(
    method: str, returned: object, error: type[Exception], message: str
) -> None:
    wrong = type("Wrong", (OwnPool,), {method: lambda self: returned})
    with pytest.raises(error, match=message):
        StreamAttr("cpu").set_threadpool(wrong())


def test_a_threadpool_that_lacks_a_method_cannot_be_made() -> None:
    lacking = type("Lacking", (OwnPool,), {"parallel_for": ThreadpoolInterface.parallel_for})
    with pytest.raises(TypeError, match="abstract method parallel_for"):
        lacking()


def test_waiting_waits_for_an_asynchronous_pool_and_raises_its_first_error() -> None:
    done: list[int] = []
    with ThreadsPool(2, asynchronous=True) as pool:
        attr = StreamAttr("cpu")
        attr.set_threadpool(pool)
        stream = Stream(Engine("cpu"), attr)
        gate = threading.Event()
        stream.pool.parallel_for(1, lambda i, _: done.append(gate.wait(30)))
        assert done == []
        gate.set()
        stream.wait()
        assert done == [True]
        stream.pool.parallel_for(1, lambda i, n: done.remove(-n))
        with pytest.raises(ValueError, match="not in list"):
            stream.wait()


def test_each_stream_on_opencl_has_a_queue_of_its_own(device: str) -> None:
    code = """
from poolrt.workers.engines.engine import Engine
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
engine = Engine("opencl")
one, other = Stream(engine), Stream(engine, StreamAttr("opencl"))
one.wait()
other.wait()
print(one.queue != other.queue)
try:
    Stream(engine, StreamAttr("cpu"))
except ValueError as error:
    print(error)
"""
    assert python(code).splitlines() == ["True", "attr: made for engines of kind cpu, the engine's is opencl"]
