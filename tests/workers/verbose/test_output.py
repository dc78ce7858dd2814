"""Verbose lines: one for each creation and execution on any engine; none, and nothing imported, when off."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers import Eltwise
from poolrt.workers.desc import MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.object_loader import NativeKernel
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.threadpools.interface import Region
from poolrt.workers.threadpools.sequential import SequentialPool
from poolrt.workers.verbose.output import LEVELS, Verbose, set_verbose

from .lines import POOLS, ReadLines, made, relu, relu_text


@pytest.mark.parametrize("kind", POOLS)
def test_every_execution_has_one_line_with_its_fields_on_every_pool(
    kind: str, store: CacheStore, clocked_loop: list[NativeKernel], read_lines: ReadLines
) -> None:
    engine = Engine("cpu")
    problem, other = relu(store, engine=engine), relu(store, rows=5, engine=engine)
    set_verbose("profile_exec")
    with made(kind, 2, clocked_loop) as pool:
        stream = problem.stream(pool)
        for _ in range(20):
            problem.run(stream)
            other.run(stream)
        stream.wait()
    lines = read_lines()
    assert [(line.operation, line.text) for line in lines] == [("exec", problem.text), ("exec", other.text)] * 20
    assert all(line.milliseconds > 0 for line in lines)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_gives_the_lines_that_it_stands_for(level: str, store: CacheStore, read_lines: ReadLines) -> None:
    set_verbose(int(level) if level.isdigit() else level)
    problem = relu(store)
    problem.run(problem.stream(SequentialPool()))
    expected = {"0": [], "1": ["exec"], "2": ["create", "exec"], "profile": ["create", "exec"]}
    expected |= {"profile_create": ["create"], "profile_exec": ["exec"]}
    lines = read_lines()
    assert [line.operation.partition(":")[0] for line in lines] == expected[level]
    assert {line.text for line in lines} <= {problem.text}


def test_an_unknown_level_is_refused_and_changes_nothing() -> None:
    verbose = Verbose("1")
    for wrong in ("3", 3, True, "", "exec"):
        with pytest.raises(
            ValueError, match="level: expect one of 0, 1, 2, profile, profile_create, profile_exec, got"
        ):
            verbose.set(wrong)
    assert (verbose.level, verbose.creates, verbose.executes) == ("1", False, True)


def test_a_creation_is_a_miss_then_a_hit_of_the_memory_then_one_of_the_files(
    tmp_path_factory: pytest.TempPathFactory, read_lines: ReadLines
) -> None:
    home = tmp_path_factory.mktemp("home")
    options: dict[str, Any] = {"home": str(home), "url": f"unix://{home}/none.sock"}
    set_verbose("profile_create")
    engine, desc = Engine("cpu"), MemoryDesc((3, 64), "f32")
    pd = Eltwise.PrimitiveDesc(engine, desc, desc, "relu").pd
    for _ in range(2):
        with CacheStore.connect(**options) as store:
            cache = PrimitiveProvider(4, store)
            for _ in range(4):
                Primitive(pd, engine, cache)
    lines = read_lines()
    hits = ["create:cache_hit"] * 3
    assert [line.operation for line in lines] == ["create:cache_miss", *hits, "create:persistent_cache_hit", *hits]
    assert {line.text for line in lines} == {relu_text()}
    # A busy machine may put the thread aside during a hit, but not during each of them for as long as a creation takes.
    assert lines[0].milliseconds > min(line.milliseconds for line in lines if line.operation == "create:cache_hit")


@pytest.mark.parametrize("kind", POOLS)
def test_lines_of_many_threads_that_execute_in_tasks_of_the_pool_neither_mix_nor_lack(
    kind: str, store: CacheStore, clocked_loop: list[NativeKernel], read_lines: ReadLines
) -> None:
    # Given a pool whose tasks execute primitives, while other threads submit more of them
    problem = relu(store)
    set_verbose(1)
    with made(kind, 2, clocked_loop) as pool:

        def nested(i: int, n: int) -> None:
            problem.run(problem.stream(pool))

        def submit() -> None:
            stream = problem.stream(pool)
            for _ in range(10):
                pool.parallel_for(3, nested)
                problem.run(stream)

        # When all of it has ended
        threads = [threading.Thread(target=submit, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        pool.wait()
    # Then each execution has its line
    lines = read_lines()
    assert len(lines) == 3 * 10 * 4
    assert {(line.operation, line.text) for line in lines} == {("exec", problem.text)}


@pytest.mark.parametrize("kind", POOLS)
def test_a_level_set_in_mid_run_holds_for_later_executions(
    kind: str, store: CacheStore, clocked_loop: list[NativeKernel], read_lines: ReadLines
) -> None:
    problem, enough = relu(store), threading.Event()

    def toggle() -> None:
        while not enough.is_set():
            set_verbose(1)
            set_verbose(0)

    toggling = threading.Thread(target=toggle, daemon=True)
    with made(kind, 2, clocked_loop) as pool:
        stream = problem.stream(pool)
        toggling.start()
        for _ in range(100):
            problem.run(stream)
        enough.set()
        toggling.join(60)
        assert not toggling.is_alive()
        pool.wait()
        lines = read_lines()
        assert len(lines) <= 100
        assert {line.text for line in lines} <= {problem.text}
        # What was submitted while they were on has its line, although they are off when it runs
        set_verbose(1)
        problem.run(stream)
        set_verbose(0)
        problem.run(stream)
        pool.wait()
    assert len(read_lines()) == 1


@pytest.mark.parametrize("kind", POOLS)
def test_an_interruption_while_a_line_is_written_is_raised_as_it_is(
    kind: str,
    store: CacheStore,
    clocked_loop: list[NativeKernel],
    read_lines: ReadLines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = relu(store)

    def interrupted(verbose: Verbose, text: str, nanoseconds: int) -> None:
        raise KeyboardInterrupt

    set_verbose(1)
    with made(kind, 2, clocked_loop) as pool:
        stream = problem.stream(pool)
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Verbose, "executed", interrupted)
            problem.run(stream)
            pool.wait()
        problem.run(stream)
        pool.wait()
    assert len(read_lines()) == 1


@pytest.mark.parametrize("kind", POOLS)
def test_off_an_execution_submits_its_launches_alone_and_no_clock_is_read(
    kind: str,
    store: CacheStore,
    clocked_loop: list[NativeKernel],
    read_lines: ReadLines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = relu(store)
    submitted: list[str] = []
    clocks: list[str] = []

    def counted(name: str, clock: Callable[[], Any]) -> Callable[[], Any]:
        def read() -> Any:
            clocks.append(name)
            return clock()

        return read

    with made(kind, 2, clocked_loop) as pool:
        stream, given = problem.stream(pool), pool.run_regions

        def run_regions(regions: Sequence[Region]) -> None:
            submitted.extend(region.name for region in regions)
            given(regions)

        monkeypatch.setattr(pool, "run_regions", run_regions)
        for name in ("perf_counter", "perf_counter_ns"):
            monkeypatch.setattr(time, name, counted(name, getattr(time, name)))
        # Given a primitive that was executed with lines before
        set_verbose("profile")
        problem.run(stream)
        pool.wait()
        with_lines, submitted[:] = list(submitted), []
        set_verbose(0)
        clocks.clear()
        # When it is created and executed without
        Primitive(problem.primitive.pd, problem.primitive.engine, problem.cache)
        problem.run(stream)
        pool.wait()
    # Then nothing was done for lines
    assert submitted == [name for name in with_lines if name == "native:eltwise"]
    assert 0 < len(submitted) < len(with_lines)
    assert clocks == []
