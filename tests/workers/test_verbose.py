"""Verbose lines: one for each creation and execution, whatever it runs on; none, and nothing imported, when off."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers.desc import Eltwise, MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.kernels.native.object_loader import NativeKernel
from poolrt.workers.primitives.cache import PrimitiveCache
from poolrt.workers.primitives.primitive import Primitive
from poolrt.workers.threadpools.sequential import SequentialPool
from poolrt.workers.verbose import LEVELS, Verbose, set_verbose

from .opencl.processes import ANSWER_S, ROOT
from .verbose_lines import ASYNCHRONOUS, POOLS, Told, made, parsed, relu, relu_text


@pytest.mark.parametrize("kind", POOLS)
def test_every_execution_has_one_line_with_its_fields_on_every_pool(
    kind: str, store: CacheStore, clocked_loop: list[NativeKernel], told: Told
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
    assert {line.text for line in lines} == {relu_text()}
    assert lines[0].milliseconds > lines[1].milliseconds


@pytest.mark.parametrize("kind", ASYNCHRONOUS)
def test_lines_of_many_threads_that_execute_in_tasks_of_the_pool_neither_mix_nor_lack(
    kind: str, store: CacheStore, clocked_loop: list[NativeKernel], told: Told
) -> None:
    # Given an asynchronous pool whose tasks execute primitives, while other threads submit more of them
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
    lines = told()
    assert len(lines) == 3 * 10 * 4
    assert {(line.operation, line.text) for line in lines} == {("exec", problem.text)}


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
        relu_text().replace("cpu,eltwise,native:eltwise", "opencl,eltwise,opencl:vector")
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
