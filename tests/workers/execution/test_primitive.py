"""Primitives of a process: executed on streams, from many threads at once, and found again without their engine."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers import Convolution, Eltwise
from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.object_loader import ObjectError
from poolrt.workers.engines.target import ISA_LEVELS
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.execution.primitive_desc_iface import PrimitiveDescIface
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.primitives.entry import pack_entry
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.executor import ExecutorPool
from poolrt.workers.threadpools.interface import ThreadpoolInterface
from poolrt.workers.threadpools.threads import ThreadsPool
from tests.at_lines import at_each_line
from tests.workers import compiled
from tests.workers.levels import of_level

CHANNELS, SIZE = 32, 6
BOUND_S = 60.0


@pytest.fixture
def engine() -> Engine:
    return Engine("cpu")


@pytest.fixture
def cache(store: CacheStore) -> PrimitiveProvider:
    return compiled.cache(64, store)


def convolution(
    engine: Engine, scratchpad_mode: str = "library", padding: int = 1, size: int = SIZE
) -> PrimitiveDescIface:
    """Return a 3 x 3 convolution of blocked tensors, which needs scratch memory for its padded copy, if it has one."""
    out = size + 2 * padding - 2
    src = MemoryDesc((1, CHANNELS, size, size), "f32", "aBcd16b")
    weights, dst = (
        MemoryDesc((CHANNELS, CHANNELS, 3, 3), "f32", "any"),
        MemoryDesc((1, CHANNELS, out, out), "f32", "aBcd16b"),
    )
    window = ((1, 1), (0, 0), (padding, padding), (padding, padding))
    attr = PrimitiveAttr(scratchpad_mode=scratchpad_mode)
    return Convolution.PrimitiveDesc(engine, src, weights, None, dst, *window, attr=attr)


class Problem:
    """Arguments of a convolution with weights of one constant, and what its result must be."""

    def __init__(self, pd: PrimitiveDescIface, value: int) -> None:
        self.dst = Memory(pd.dst_desc(), pd.engine)
        self.args: dict[Arg, Memory] = {Arg.DST: self.dst}
        for arg, desc, content in ((Arg.SRC, pd.src_desc(), value), (Arg.WEIGHTS, pd.weights_desc(), 1)):
            self.args[arg] = Memory(desc, pd.engine)
            np.frombuffer(self.args[arg].map(), np.float32)[:] = content
            self.args[arg].unmap()
        self.middle = 9.0 * CHANNELS * value

    def clear(self) -> None:
        self._flat()[:] = np.nan

    def assert_right(self) -> None:
        out = self.dst.desc.dims[2]
        rows = self._flat().reshape(CHANNELS // 16, out, out, 16)
        assert (rows[:, 1:-1, 1:-1] == self.middle).all()
        assert np.isfinite(rows).all()

    def _flat(self) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return np.frombuffer(self.dst.map(), np.float32)


def stream_on(engine: Engine, pool: ThreadpoolInterface | None) -> Stream:
    attr = StreamAttr("cpu")
    attr.set_threadpool(pool)
    return Stream(engine, attr)


@pytest.fixture(params=["none", "threads", "asynchronous", "executor"])
def pool(request: pytest.FixtureRequest) -> Iterator[ThreadpoolInterface | None]:
    """Return each kind of threadpool."""
    if request.param == "none":
        yield None
    elif request.param == "executor":
        with ThreadPoolExecutor(2) as executor:
            yield ExecutorPool(executor, 2)
    else:
        with ThreadsPool(3, asynchronous=request.param == "asynchronous") as threads:
            yield threads


def test_a_primitive_computes_on_every_kind_of_threadpool(
    engine: Engine, cache: PrimitiveProvider, pool: ThreadpoolInterface | None
) -> None:
    pd = convolution(engine)
    primitive, problem = pd.create(cache), Problem(pd, 3)
    stream = stream_on(engine, pool)
    for _ in range(3):
        problem.clear()
        primitive.execute(stream, problem.args)
        stream.wait()
        problem.assert_right()


def test_an_asynchronous_execution_keeps_what_it_works_on(engine: Engine, cache: PrimitiveProvider) -> None:
    pd = convolution(engine)
    with ThreadsPool(1, asynchronous=True) as pool:
        stream = stream_on(engine, pool)
        # Given a pool that is busy, so that nothing runs yet
        gate = threading.Event()

        def hold_up(_i: int, _n: int) -> None:
            gate.wait(BOUND_S)

        pool.parallel_for(1, hold_up)
        problem = Problem(pd, 2)
        problem.clear()
        primitive = pd.create(cache)
        primitive.execute(stream, problem.args)
        weights = weakref.ref(problem.args[Arg.WEIGHTS])
        # When everybody has let go of primitive, memories and stream
        dst = problem.dst
        problem.args.clear()
        del primitive, stream
        gc.collect()
        assert weights() is not None
        gate.set()
        pool.wait()
    # Then it was computed all the same
    problem.dst = dst
    problem.assert_right()


def test_memory_may_lie_elsewhere_before_an_asynchronous_execution_has_run(
    engine: Engine, cache: PrimitiveProvider
) -> None:
    md = MemoryDesc((4,), "f32")
    primitive = Eltwise.PrimitiveDesc(engine, md, md, "linear", 2.0).create(cache)
    with ThreadsPool(1, asynchronous=True) as pool:
        # Given an execution that has not begun
        gate = threading.Event()
        pool.parallel_for(1, lambda _i, _n: (gate.wait(BOUND_S), None)[1])
        numbers = np.arange(4, dtype=np.float32)
        src, dst = Memory(md, engine, numbers), Memory(md, engine)
        primitive.execute(stream_on(engine, pool), {Arg.SRC: src, Arg.DST: dst})
        # When its source gets another address, and the bytes before have no other owner
        src.set_data_handle(dst.address)
        before = weakref.ref(numbers)
        del numbers
        gc.collect()
        # Then they live until it has ended
        assert before() is not None
        gate.set()
        pool.wait()
    assert dst.numpy().tolist() == [0, 2, 4, 6]
    gc.collect()
    assert before() is None


@pytest.mark.parametrize("mode", ["library", "user"])
def test_threads_and_streams_share_a_primitive(engine: Engine, cache: PrimitiveProvider, mode: str) -> None:
    pd = convolution(engine, mode)
    primitive = pd.create(cache)
    wrong: list[BaseException] = []
    meeting = threading.Barrier(8, timeout=BOUND_S)
    shared = Stream(engine)

    def compute(number: int) -> None:
        try:
            # Half of the threads have a stream of their own, the others share one
            stream = Stream(engine) if number % 2 else shared
            problem = Problem(pd, number + 1)
            args = dict(problem.args)
            if mode == "user":
                args[Arg.SCRATCHPAD] = Memory(pd.scratchpad_desc(), engine)
            meeting.wait()
            for _ in range(40):
                problem.clear()
                primitive.execute(stream, args)
                stream.wait()
                problem.assert_right()
        except BaseException as error:  # noqa: BLE001 - reported by the test
            wrong.append(error)

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
        assert not thread.is_alive()
    assert wrong == []


def test_an_execution_that_interrupts_another_of_its_thread_has_scratch_memory_of_its_own(
    engine: Engine, cache: PrimitiveProvider
) -> None:
    pd = convolution(engine)
    primitive = pd.create(cache)
    outer, inner = Problem(pd, 1), Problem(pd, 3)

    def execute(problem: Problem, stream: Stream) -> None:
        problem.clear()
        primitive.execute(stream, problem.args)
        problem.assert_right()

    with ThreadsPool(2) as pool:
        for stream in (Stream(engine), stream_on(engine, pool)):
            execute(outer, stream)
            work, interrupt = partial(execute, outer, stream), partial(execute, inner, stream)
            assert at_each_line(work, interrupt, "workers/execution/") > 5


def test_scratch_memory_of_the_user_is_used(engine: Engine, cache: PrimitiveProvider) -> None:
    pd = convolution(engine, "user")
    problem, scratchpad = Problem(pd, 1), Memory(pd.scratchpad_desc(), engine)
    args = {**problem.args, Arg.SCRATCHPAD: scratchpad}
    primitive = pd.create(cache)
    primitive.execute(Stream(engine), args)
    problem.assert_right()
    # The padded copy of src lies there
    assert 1.0 in np.frombuffer(scratchpad.map(), np.float32)
    with pytest.raises(ValueError, match=r"argument 80 \(SCRATCHPAD\): missing"):
        primitive.execute(Stream(engine), problem.args)


def test_the_library_does_not_take_scratch_memory_that_it_has_not_asked_for(
    engine: Engine, cache: PrimitiveProvider
) -> None:
    pd = convolution(engine)
    problem, tiny = Problem(pd, 1), Memory(MemoryDesc((1,), "u8"), engine)
    pd.create(cache).execute(Stream(engine), {**problem.args, Arg.SCRATCHPAD: tiny})
    problem.assert_right()


def test_a_primitive_is_found_again_without_its_engine(engine: Engine, store: CacheStore) -> None:
    cache = compiled.cache(8, store)
    first = Engine("cpu")
    # Of four outputs: the kernel for so few is that of no other test here, except on levels where it serves others too.
    primitive = convolution(first, padding=0, size=4).create(cache)
    source = primitive.source
    assert source in ("created", "derived")
    # When engine and primitive are gone
    gone: list[weakref.ref[Any]] = [weakref.ref(first), weakref.ref(primitive.resources)]
    del first, primitive
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    # Then another engine, and another cache on the same store, find it
    pd = convolution(engine, padding=0, size=4)
    primitive = pd.create(cache)
    assert primitive.source == "memory"
    assert pd.create(compiled.cache(8, store)).source == {"created": "files"}.get(source, source)
    # And what was found computes
    problem = Problem(pd, 1)
    primitive.execute(Stream(engine), problem.args)
    problem.assert_right()


def test_a_hit_is_realized_by_its_first_execution_and_all_else_at_once(engine: Engine, tmp_path: Path) -> None:
    md = MemoryDesc((24,), "f32")
    pd = Eltwise.PrimitiveDesc(engine, md, md, "square")
    # Given an entry whose kernel no engine can map
    entry = pack_entry(pd.impl_name(), "cpu", pd.pd.program(), [b"no object"], [])
    with CacheStore.connect(home=str(tmp_path)) as store:
        store.get_or_create(primitive_key(pd.pd), lambda: entry)
        # When it is in memory, then it is found, and refused when it is executed
        primitive = pd.create(compiled.cache(8, store))
        assert primitive.source == "memory"
        for _ in range(2):
            with pytest.raises(ObjectError):
                primitive.execute(Stream(engine), {Arg.SRC: Memory(md), Arg.DST: Memory(md)})
    # When it comes from elsewhere, then it is refused at once
    with CacheStore.connect(home=str(tmp_path)) as store:
        with pytest.raises(ObjectError):
            pd.create(compiled.cache(8, store))
        store.down()


def test_threads_that_execute_a_hit_first_compute_side_by_side(engine: Engine, cache: PrimitiveProvider) -> None:
    pd = convolution(engine)
    pd.create(cache)

    def compute(primitive: Primitive, meeting: threading.Barrier, value: int) -> None:
        problem = Problem(pd, value)
        meeting.wait()
        primitive.execute(Stream(engine), problem.args)
        problem.assert_right()

    with ThreadPoolExecutor(4) as threads:
        for _ in range(20):
            hit, meeting = pd.create(cache), threading.Barrier(4, timeout=BOUND_S)
            assert hit.source == "memory"
            list(threads.map(compute, [hit] * 4, [meeting] * 4, range(1, 5), timeout=BOUND_S))


def test_objects_of_other_types_are_refused_by_name(engine: Engine, cache: PrimitiveProvider) -> None:
    md = MemoryDesc((4,), "f32")
    pd = primitive_desc(Eltwise(md, md, "relu"), PrimitiveAttr(), engine.target)
    primitive, memory = Primitive(pd, engine, cache), Memory(md, engine)
    calls: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: Primitive("relu", engine, cache), "pd: expect a PrimitiveDesc, got str"),  # type: ignore[arg-type]
        (lambda: Primitive(pd, "cpu", cache), "engine: expect an Engine, got str"),  # type: ignore[arg-type]
        (lambda: primitive.execute(engine, {Arg.SRC: memory}), "stream: expect a Stream, got Engine"),  # type: ignore[arg-type]
        (lambda: primitive.execute(None, {}), "stream: expect a Stream, got NoneType"),  # type: ignore[arg-type]
    )
    for call, message in calls:
        with pytest.raises(TypeError, match=message):
            call()


def test_an_engine_that_cannot_run_a_primitive_is_refused(
    cache: PrimitiveProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    md = MemoryDesc((4,), "f32")
    weak, strong = (
        primitive_desc(Eltwise(md, md, "relu"), PrimitiveAttr(), of_level(level)) for level in [*ISA_LEVELS][:2]
    )
    engine = Engine("cpu")
    object.__setattr__(engine, "target", weak.target)
    with pytest.raises(ValueError, match=r"engine: .* cannot run code made for"):
        Primitive(strong, engine, cache)
    # The other way round a more able engine runs what is made for all
    monkeypatch.setenv("POOLRT_MAX_CPU_ISA", "")
    able = Engine("cpu")
    stream, memories = Stream(able), {arg: Memory(md, able) for arg in (Arg.SRC, Arg.DST)}
    memories[Arg.SRC].numpy()[:] = (-1, 0, 2, -3)
    Primitive(weak, able, cache).execute(stream, memories)
    stream.wait()
    assert memories[Arg.DST].numpy().tolist() == [0, 0, 2, 0]


WRONG: list[tuple[Callable[[Engine, dict[Arg, Memory]], tuple[Stream, dict[Arg, Memory]]], str]] = [
    (lambda e, args: (Stream(e), {Arg.SRC: args[Arg.SRC]}), r"argument 33 \(WEIGHTS\): missing; expect f32:"),
    (
        lambda e, args: (Stream(e), {**args, Arg.DST: Memory(MemoryDesc((4,), "f32"))}),
        r"argument 17 \(DST\): expect f32",
    ),
    (lambda e, args: (Stream(Engine("cpu")), args), "stream: expect one on the primitive"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_errors_of_an_execution_name_the_argument(engine: Engine, cache: PrimitiveProvider, number: int) -> None:
    pd = convolution(engine)
    change, message = WRONG[number]
    stream, args = change(engine, Problem(pd, 1).args)
    with pytest.raises(ValueError, match=message):
        pd.create(cache).execute(stream, args)


def test_memory_of_the_host_and_of_any_cpu_engine_is_accepted(engine: Engine, cache: PrimitiveProvider) -> None:
    pd = convolution(engine)
    problem = Problem(pd, 1)
    for arg, other in ((Arg.SRC, None), (Arg.WEIGHTS, Engine("cpu"))):
        content = np.frombuffer(problem.args[arg].map(), np.float32).copy()
        problem.args[arg] = Memory(problem.args[arg].desc, other, content)
    pd.create(cache).execute(Stream(engine), problem.args)
    problem.assert_right()
