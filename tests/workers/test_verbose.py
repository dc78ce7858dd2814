"""Verbose lines: one for each creation and execution, whatever it runs on; none, and nothing imported, when off."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers.desc import Eltwise, Matmul, MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.target import host_isa
from poolrt.workers.kernels.native.codegen import compile_kernel
from poolrt.workers.kernels.native.object_loader import NativeKernel, load_object
from poolrt.workers.memory.storage import Memory
from poolrt.workers.primitives.cache import PrimitiveCache
from poolrt.workers.primitives.primitive import Primitive
from poolrt.workers.primitives.primitive_desc_iface import PrimitiveDescIface
from poolrt.workers.primitives.program import KernelSpec
from poolrt.workers.primitives.region_loop import PARTS
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.interface import ThreadpoolInterface
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.sequential import SequentialPool
from poolrt.workers.threadpools.threads import ThreadsPool
from poolrt.workers.verbose import LEVELS, Verbose, set_verbose

from .opencl.processes import ANSWER_S, ROOT

RELU = (
    "cpu,eltwise,native:eltwise,forward_inference,src:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,"
    "alg:eltwise_relu alpha:0 beta:0,{rows}x64"
)
SIZE = 1024
PRODUCT = (
    "cpu,matmul,native:tiles,undef,src:f32::blocked:ab::f0 wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,"
    f"{SIZE}x{SIZE}:{SIZE}x{SIZE}"
)
POOLS = ("sequential", "threads", "threads asynchronous", "native asynchronous")
#: Deviation of the sum of all times from the time that the pool was busy.
TOLERANCE = 0.05
ATTEMPTS = 3


@dataclass(frozen=True)
class Line:
    """A line taken apart: what happened, the fields of the primitive as one text, milliseconds."""

    operation: str
    text: str
    milliseconds: float


Told = Callable[[], list[Line]]


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str]) -> Iterator[Told]:
    """Return what gives the lines written since it was last asked; verbose is off before and after the test."""
    set_verbose(0)
    yield lambda: parsed(capfd.readouterr().err)
    set_verbose(0)


def parsed(written: str) -> list[Line]:
    """Return the lines of a text, all of which must be verbose lines, without first lines of processes."""
    lines = []
    for line in written.splitlines():
        marker, operation, *fields = line.split(",")
        assert marker == "poolrt_verbose", line
        if operation != "info":
            assert len(fields) == 9, line
            lines.append(Line(operation, ",".join(fields[:-1]), float(fields[-1])))
    return lines


@pytest.fixture(scope="module")
def loop() -> list[NativeKernel]:
    """Return the kernels of native pools, the clock among them."""
    return [load_object(compile_kernel(KernelSpec.of("region_loop", part=part), host_isa())) for part in PARTS]


@contextmanager
def made(kind: str, threads: int, loop: list[NativeKernel]) -> Iterator[ThreadpoolInterface]:
    asynchronous = kind.endswith("asynchronous")
    if kind == "sequential":
        pool: Any = nullcontext(SequentialPool())
    elif kind.startswith("threads"):
        pool = ThreadsPool(threads, asynchronous)
    else:
        pool = NativePool(threads, asynchronous, loop)
    with pool as given:
        yield given


class Problem:
    """A primitive on memories of its own, full of zeros; `run` executes it on a stream."""

    def __init__(self, store: CacheStore, pd: PrimitiveDescIface, text: str) -> None:
        self.text = text
        self.primitive = Primitive(pd.pd, pd.engine, PrimitiveCache(4, store))
        self._args: dict[int, Memory] = {arg: Memory(desc, pd.engine) for arg, desc in pd.pd.memories().items()}
        for memory in self._args.values():
            np.frombuffer(memory.map(), np.float32)[:] = 0
            memory.unmap()

    def stream(self, pool: ThreadpoolInterface) -> Stream:
        attr = StreamAttr("cpu")
        attr.set_threadpool(pool)
        return Stream(self.primitive.engine, attr)

    def run(self, stream: Stream) -> None:
        self.primitive.execute(stream, self._args)


def relu(store: CacheStore, rows: int = 3, engine: Engine | None = None) -> Problem:
    """Return a problem of about a microsecond."""
    desc = MemoryDesc((rows, 64), "f32")
    return Problem(store, Eltwise.PrimitiveDesc(engine or Engine("cpu"), desc, desc, "relu"), RELU.format(rows=rows))


def product(store: CacheStore) -> Problem:
    """Return a problem of some milliseconds."""
    desc = MemoryDesc((SIZE, SIZE), "f32")
    return Problem(store, Matmul.PrimitiveDesc(Engine("cpu"), desc, desc, None, desc), PRODUCT)


@pytest.mark.parametrize("kind", POOLS)
def test_every_execution_has_one_line_with_its_fields_on_every_pool(
    kind: str, store: CacheStore, loop: list[NativeKernel], told: Told
) -> None:
    engine = Engine("cpu")
    problem, other = relu(store, engine=engine), relu(store, rows=5, engine=engine)
    set_verbose("profile_exec")
    with made(kind, 2, loop) as pool:
        stream = problem.stream(pool)
        for _ in range(20):
            problem.run(stream)
            other.run(stream)
        stream.wait()
    lines = told()
    assert [(line.operation, line.text) for line in lines] == [("exec", problem.text), ("exec", other.text)] * 20
    assert all(line.milliseconds > 0 for line in lines)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_gives_the_lines_that_it_stands_for(level: str, store: CacheStore, told: Told) -> None:
    set_verbose(int(level) if level.isdigit() else level)
    problem = relu(store)
    problem.run(problem.stream(SequentialPool()))
    expected = {"0": [], "1": ["exec"], "2": ["create", "exec"], "profile": ["create", "exec"]}
    expected |= {"profile_create": ["create"], "profile_exec": ["exec"]}
    lines = told()
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
    tmp_path_factory: pytest.TempPathFactory, told: Told
) -> None:
    home = tmp_path_factory.mktemp("home")
    options: dict[str, Any] = {"home": str(home), "url": f"unix://{home}/none.sock"}
    set_verbose("profile_create")
    engine, desc = Engine("cpu"), MemoryDesc((3, 64), "f32")
    pd = Eltwise.PrimitiveDesc(engine, desc, desc, "relu").pd
    for _ in range(2):
        with CacheStore.connect(**options) as store:
            cache = PrimitiveCache(4, store)
            for _ in range(2):
                Primitive(pd, engine, cache)
    lines = told()
    hit = "create:cache_hit"
    assert [line.operation for line in lines] == ["create:cache_miss", hit, "create:persistent_cache_hit", hit]
    assert {line.text for line in lines} == {RELU.format(rows=3)}
    assert lines[0].milliseconds > lines[1].milliseconds


@pytest.mark.parametrize("kind", POOLS[2:])
def test_lines_of_many_threads_that_execute_in_tasks_of_the_pool_neither_mix_nor_lack(
    kind: str, store: CacheStore, loop: list[NativeKernel], told: Told
) -> None:
    # Given an asynchronous pool whose tasks execute primitives, while other threads submit more of them
    problem = relu(store)
    set_verbose(1)
    with made(kind, 2, loop) as pool:

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
    lines = told()
    assert len(lines) == 3 * 10 * 4
    assert {(line.operation, line.text) for line in lines} == {("exec", problem.text)}


@pytest.mark.parametrize("seconds", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_times_of_an_asynchronous_nested_run_add_up_to_the_time_that_the_pool_was_busy(
    seconds: int, store: CacheStore, loop: list[NativeKernel], told: Told
) -> None:
    # Given a primitive that takes some milliseconds, and about as many executions as fill the time
    problem = product(store)
    set_verbose("profile")
    for _ in range(5):
        problem.run(problem.stream(SequentialPool()))
    rounds = math.ceil(seconds * 1e3 / sorted(line.milliseconds for line in told())[2] / 3)
    deviations: list[float] = []
    # A busy machine may put the pool's thread aside between two executions, which is no time of either: try again.
    while not deviations or (min(deviations) > TOLERANCE and len(deviations) < ATTEMPTS):
        # When they run on a pool of one thread, one of three asynchronously and two in tasks of the pool
        busy = _busy(problem, rounds, loop)
        # Then each has its line, and their times are the pool's
        lines = told()
        assert [line.text for line in lines] == [problem.text] * rounds * 3
        deviations.append(abs(sum(line.milliseconds for line in lines) / 1e3 / busy - 1))
    assert min(deviations) <= TOLERANCE


def _busy(problem: Problem, rounds: int, loop: list[NativeKernel]) -> float:
    """Return the seconds that an asynchronous pool of one thread is busy with three executions a round."""
    busy: list[float] = []
    with made("native asynchronous", 1, loop) as pool:
        stream = problem.stream(pool)

        def now(i: int, n: int) -> None:
            busy.append(time.perf_counter())

        def nested(i: int, n: int) -> None:
            problem.run(stream)

        pool.parallel_for(1, now)
        for _ in range(rounds):
            problem.run(stream)
            pool.parallel_for(2, nested)
        pool.parallel_for(1, now)
        pool.wait()
    return busy[1] - busy[0]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the cache folder of processes that find no Redis."""
    return tmp_path_factory.mktemp("home")


def run(code: str, kind: str, home: Path, **env: str) -> tuple[str, str]:
    """Return what a new interpreter writes to standard output and error for code that may call ``execute``."""
    quiet = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
    own = {"POOLRT_HOME": str(home), "POOLRT_REDIS_URL": f"unix://{home}/none.sock"}
    child = subprocess.run(
        [sys.executable, "-c", _EXECUTE + code, kind],
        cwd=ROOT,
        env={**quiet, **own, **env},
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout, child.stderr


_EXECUTE = """
import os, sys
import poolrt
from poolrt.workers.desc import Eltwise, MemoryDesc

kind = sys.argv[1]
engine, desc = poolrt.Engine(kind), MemoryDesc((3, 64), "f32")
src, dst = poolrt.Memory(desc, engine), poolrt.Memory(desc, engine)
stream = poolrt.Stream(engine)

def execute():
    primitive = Eltwise.PrimitiveDesc(engine, desc, desc, "relu").create()
    primitive.execute(stream, {1: src, 17: dst})
    primitive.execute(stream, {1: src, 17: dst})
    stream.wait()
"""


def test_on_opencl_every_execution_has_one_line_once_it_was_waited_for(device: str, home: Path) -> None:
    # Given a stream that was made, and used, before verbose was turned on
    code = "execute(); poolrt.set_verbose(2); execute(); poolrt.set_verbose(0); execute(); poolrt.set_verbose(1); execute()"
    lines = parsed(run(code, "opencl", home)[1])
    assert [line.operation for line in lines] == ["create:cache_hit", *["exec"] * 4]
    assert {line.text for line in lines} == {
        RELU.format(rows=3).replace("cpu,eltwise,native:eltwise", "opencl,eltwise,opencl:vector")
    }
    assert all(line.milliseconds > 0 for line in lines)


def test_the_environment_turns_lines_on_and_the_interface_comes_before_it(home: Path) -> None:
    code = "execute(); poolrt.set_verbose(0); execute()"
    out, err = run(code, "cpu", home, POOLRT_VERBOSE="profile")
    first, *lines = err.splitlines()
    assert re.fullmatch(
        r"poolrt_verbose,info,process:\d+,template:operation,engine,.*,auxiliary,problem_desc,exec_time", first
    )
    assert [line.split(",")[1].partition(":")[0] for line in lines] == ["create", "exec", "exec"]
    assert out == ""


def test_a_wrong_variable_is_named_in_the_error(home: Path) -> None:
    code = "try:\n    execute()\nexcept ValueError as error:\n    print(error)"
    out, err = run(code, "cpu", home, POOLRT_VERBOSE="loud")
    assert out == "POOLRT_VERBOSE: expected one of 0, 1, 2, profile, profile_create, profile_exec, got 'loud'\n"
    assert err == ""


def test_off_nothing_is_written_and_nothing_that_describes_primitives_is_imported(home: Path) -> None:
    code = "execute(); print('poolrt.workers.verbose_text' in sys.modules)"
    assert run(code, "cpu", home) == ("False\n", "")


def test_lines_that_nobody_can_read_are_counted_and_harm_no_execution(home: Path) -> None:
    closed = "read, write = os.pipe(); os.dup2(write, 2); os.close(write); os.close(read);"
    code = (
        closed + "poolrt.set_verbose(1); execute()\nfrom poolrt.workers.verbose import verbose\nprint(verbose().lost)"
    )
    assert run(code, "cpu", home)[0] == "2\n"
