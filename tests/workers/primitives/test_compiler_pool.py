"""The compilers of a process that has none: who starts them, what they answer, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CreationFailed
from poolrt.workers import Eltwise
from poolrt.workers.desc import MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_desc
from poolrt.workers.primitives import compiler_pool as module
from poolrt.workers.primitives.compiler_pool import CompilerPool
from poolrt.workers.primitives.entry import parse_entry
from tests.startup.shared_compiler import FOLDER
from tests.workers.own_process import ANSWER_S

BOUND_S = 30.0
_SIZES = count(17)


@pytest.fixture
def compilers() -> Iterator[CompilerPool]:
    # Idle ones of other tests end some time later
    wait_until(lambda: programs() == [])
    made = CompilerPool(2)
    yield made
    made.close()
    assert programs() == []


def some_primitive() -> PrimitiveDesc:
    md = MemoryDesc((next(_SIZES),), "f32")
    return primitive_desc(Eltwise(md, md, "relu"), PrimitiveAttr(), cpu_target())


def programs() -> list[int]:
    """Return the compilers of this process."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            for pid in (task / "children").read_text(encoding="ascii").split():
                if b"poolrt.workers.processes.creator" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
    return found


def break_compilers(place: Path, patched: pytest.MonkeyPatch, code: str) -> None:
    """Have compilers that start from now on run some code in the place of what they compile with."""
    (place / "llvmlite").mkdir()
    (place / "llvmlite" / "__init__.py").write_text(f"{code}\n", encoding="utf-8")
    patched.syspath_prepend(str(place))
    patched.delenv(FOLDER, raising=False)  # kernels of other tests would need no compiler


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


def test_threads_share_as_many_compilers_as_there_may_be(compilers: CompilerPool) -> None:
    wanted = [some_primitive() for _ in range(3)]
    entries: dict[int, bytes] = {}
    threads = [
        threading.Thread(target=lambda i=i: entries.update({i: compilers.create(wanted[i])}))
        for i in range(len(wanted))
    ]
    most = 0
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        most = max(most, len(programs()))
        threads[0].join(0.01)
        threads[-1].join(0.01)
    assert most == 2
    assert [parse_entry(entries[i]).implementation for i in range(len(wanted))] == [pd.impl_name() for pd in wanted]


def test_a_compiler_that_is_killed_or_let_go_idle_is_replaced(
    compilers: CompilerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a compiler that is kept
    compilers.create(some_primitive())
    (kept,) = programs()
    # When it dies, idle
    os.kill(kept, signal.SIGKILL)
    # Then the next one who asks does not notice
    monkeypatch.setattr(module, "KEPT_S", 0.05)
    assert parse_entry(compilers.create(some_primitive())).binaries
    assert kept not in programs()
    # And an idle one is let go
    wait_until(lambda: programs() == [])
    assert compilers.create(some_primitive())


def test_a_primitive_that_kills_two_compilers_is_an_error_that_names_it(
    compilers: CompilerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given compilers that do not come to an answer
    errors: list[BaseException] = []
    break_compilers(tmp_path, monkeypatch, "import time; time.sleep(600)")

    def create() -> None:
        try:
            compilers.create(some_primitive())
        except CreationFailed as error:
            errors.append(error)

    thread = threading.Thread(target=create)
    thread.start()
    killed: set[int] = set()
    # When each is killed
    while thread.is_alive():
        for pid in set(programs()) - killed:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        thread.join(0.002)
    # Then two were tried
    assert len(killed) == 2
    assert "eltwise (native:eltwise)" in str(errors[0])
    assert "signal 9" in str(errors[0])
    # And the next one is none the worse
    monkeypatch.undo()
    assert compilers.create(some_primitive())


def test_an_error_of_the_compiler_comes_with_type_message_and_log(
    compilers: CompilerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_compilers(tmp_path, monkeypatch, "raise RuntimeError('this one is broken')")
    with pytest.raises(CreationFailed, match="this one is broken") as caught:
        compilers.create(some_primitive())
    assert caught.value.type == "RuntimeError"
    assert f"{tmp_path}/llvmlite/__init__.py" in caught.value.log


def test_a_compilation_that_takes_too_long_is_an_error_and_its_compiler_ends(
    compilers: CompilerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIMIT_S", 0.01)
    with pytest.raises(TimeoutError, match=r"eltwise .*not compiled within"):
        compilers.create(some_primitive())
    assert programs() == []


def test_waiting_for_a_free_compiler_is_bounded(compilers: CompilerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT_S", 0.01)
    with compilers._free, compilers._free, pytest.raises(TimeoutError, match=r"eltwise .*no compiler process was free"):
        compilers.create(some_primitive())
    assert programs() == []


def test_a_process_that_asks_imports_no_compiler_and_leaves_none_behind(tmp_path: Path) -> None:
    code = """
        import json, os, sys
        from contextlib import suppress
        from pathlib import Path
        from poolrt.cachestore import CacheStore
        from poolrt.workers import Eltwise, Engine, MemoryDesc
        from poolrt.workers.primitives.provider import PrimitiveProvider
        store = CacheStore.connect(home=sys.argv[1])
        md = MemoryDesc((64,), "f32")
        sources = []
        for cache in (PrimitiveProvider(4, store), PrimitiveProvider(4, store)):
            sources.append(Eltwise.PrimitiveDesc(Engine("cpu"), md, md, "relu").create(cache).source)
        child = os.fork()
        if child == 0:  # has no compilers of its parent's, and may start its own
            source = Eltwise.PrimitiveDesc(Engine("cpu"), md, md, "abs").create(PrimitiveProvider(4, store)).source
            os._exit(source != "created")
        sources.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        store.down()
        children = []
        for task in Path("/proc/self/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
                children += (task / "children").read_text().split()
        print(json.dumps([sources, sorted({"numba", "llvmlite"} & set(sys.modules)), children]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        capture_output=True, text=True, timeout=ANSWER_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    assert found[0] == ["created", "files", 0]
    assert found[1] == []
    # What it left running has ended with it
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in found[2]))
