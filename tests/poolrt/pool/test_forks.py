"""Pools and connections that cross a fork: the child gets its own at its first call, the parent's stay intact."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import PoolClosed

from .gunicorn_service import ask, listens, needs_gunicorn, service
from .processes import BOUND_S, family, relu_graph, wait_until
from .servers import started

# Python 3.12 warns of threads at a fork, which these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
_X = np.ones((4, 8), np.float32)


def _fork(act: Callable[[], object]) -> int:
    """Fork, call a function in the child, and return the child's process id; it exits with 0 if the function is true."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(int(3 * BOUND_S))
            code = 0 if act() else 2
        except BaseException as error:  # noqa: BLE001 - printed; the child must not go on as a test
            print(f"in the child: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    return pid


def _status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture(params=["own", "connected"])
def crossing(request: pytest.FixtureRequest, settings: dict[str, Any], tmp_path: Path) -> Iterator[poolrt.Pool]:
    """A pool of its own, or a connection to a server; nothing is left of it."""
    before = set(family())
    if request.param == "own":
        with poolrt.Pool(workers=1, threads=1, **settings) as pool:
            yield pool
    else:
        with started(tmp_path / "s", settings) as server, poolrt.connect(server.path) as pool:
            yield pool
    wait_until(lambda: set(family()) <= before, "all processes are gone")


@pytest.mark.one_in(2)
def test_a_child_forked_amid_runs_has_a_pool_that_works_and_the_parents_goes_on(crossing: poolrt.Pool) -> None:
    pool, model = crossing, crossing.load(relu_graph())
    coordinator = pool.stats()["pid"]
    kept = model.run(x=_X)["y"]
    over, wrong = threading.Event(), []

    def work() -> None:
        while not over.is_set():
            try:
                if model.run(x=_X)["y"].sum() != 32 or model.submit(x=_X).result(BOUND_S)["y"].sum() != 32:
                    wrong.append("a wrong result")
            except Exception as error:  # noqa: BLE001 - checked below
                wrong.append(repr(error))

    def use() -> bool:
        ran = model.run(x=kept)["y"].sum() == 32 and model.submit(x=_X).result(BOUND_S)["y"].sum() == 32
        called = pool.submit(pow, 2, 5).result(BOUND_S) == 32
        mine = pool.empty((4, 8))
        mine[...] = 2
        in_place = model.run(x=mine)["y"].sum() == 64
        again = _fork(lambda: model.run(x=_X)["y"].sum() == 32)  # a fork of a fork
        own = (pool.stats()["pid"] != coordinator) == (pool._session.path == "")
        return bool(ran and called and in_place and own and _status(again) == 0)

    threads = [threading.Thread(target=work) for _ in range(3)]
    try:
        for thread in threads:
            thread.start()
        children = [_fork(use) for _ in range(2)]
        assert [_status(child) for child in children] == [0, 0]
    finally:
        over.set()
        for thread in threads:
            thread.join(BOUND_S)
    assert wrong == []
    assert pool.stats()["pid"] == coordinator
    assert kept.sum() == 32
    assert model.run(x=_X)["y"].sum() == 32
    assert pool.submit(pow, 2, 5).result(BOUND_S) == 32


def test_a_child_that_closes_or_forgets_its_copy_leaves_the_parents_pool_alone(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, keep_graphs=False, **settings) as pool:
        model = pool.load(relu_graph())
        kept = model.run(x=_X)["y"]

        def refused() -> bool:
            with pytest.raises(PoolClosed, match=r"its graph was not kept \(the setting keep_graphs\): load it again"):
                model.run(x=_X)
            return bool(pool.load(relu_graph()).run(x=_X)["y"].sum() == 32)

        def closed() -> bool:
            pool.close()
            with pytest.raises(PoolClosed):
                pool.stats()
            return True

        def dropped() -> bool:
            nonlocal kept
            model.close()
            del kept
            return True

        for act in (refused, closed, dropped):
            assert _status(_fork(act)) == 0
        assert kept.sum() == 32
        assert model.run(x=_X)["y"].sum() == 32
        used = pool.stats()["arena"]["used"]
        del kept
        wait_until(lambda: pool.stats()["arena"]["used"] < used, "the parent's array was in use until now")


_PENDING = """
    import os, sys, time
    import poolrt
    pool = poolrt.Pool(workers=1, home=sys.argv[1], redis_url="unix:///nowhere/none.sock", arena_bytes=64 << 20)
    pending = pool.submit(time.sleep, 3600)
    child = os.fork()
    if child == 0:
        sys.exit(7)  # the whole end of an interpreter, which does not wait for the parent's futures
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert not pending.done()
    queue = pool.stats()["queue"]
    assert queue["in_flight"] + queue["waiting"] == 1
    pool.close()
"""


def test_a_child_that_exits_does_not_wait_for_the_parents_futures(settings: dict[str, Any]) -> None:
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(_PENDING), settings["home"]]
    assert subprocess.run(command, timeout=3 * BOUND_S, check=False).returncode == 0


_IMPORTING = """
    import os, signal, sys, threading, time
    import numpy as np
    import poolrt

    class Slow:
        # It holds up the thread that imports the modules of futures first.
        begun = threading.Event()
        def find_spec(self, name, path=None, target=None):
            if name == "poolrt.runs.submitted_run":
                self.begun.set()
                time.sleep(0.3)

    graph = poolrt.Graph()
    graph.output("y", graph.eltwise(graph.input("x", (4, 8), "float32"), "relu"))
    home, x = sys.argv[1], np.ones((4, 8), np.float32)
    with poolrt.Pool(workers=1, threads=1, home=home, redis_url=f"unix://{home}/none.sock", arena_bytes=64 << 20) as pool:
        model = pool.load(graph)
        model.run(x=x)
        assert "poolrt.runs.submitted_run" not in sys.modules
        sys.meta_path.insert(0, Slow())
        thread = threading.Thread(target=lambda: model.submit(x=x).result(20))
        thread.start()
        assert Slow.begun.wait(20)
        child = os.fork()
        if not child:
            signal.alarm(20)
            os._exit(0 if model.submit(x=x).result(20)["y"].sum() == 32 else 1)
        thread.join()
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_forked_while_a_thread_imports_what_futures_need_has_futures(settings: dict[str, Any]) -> None:
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(_IMPORTING), settings["home"]]
    assert subprocess.run(command, timeout=3 * BOUND_S, check=False).returncode == 0


def _sockets() -> set[str]:
    """Return the names of the sockets that this process has open."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            pass  # that of the listing itself
    return {name for name in found if name.startswith("socket:")}


def test_a_child_does_not_keep_the_parents_connection_open(settings: dict[str, Any]) -> None:
    reader, writer = os.pipe()
    without = _sockets()
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        pool.stats()
        ours = _sockets() - without
        assert len(ours) == 1
        assert _status(_fork(lambda: os.write(writer, " ".join(_sockets()).encode() + b".") > 0)) == 0
        assert not ours & set(os.read(reader, 65536).decode().rstrip(".").split())
    os.close(reader)
    os.close(writer)


_SERVICE = """
    import os
    import numpy as np
    import poolrt
    graph = poolrt.Graph("service")
    graph.output("y", graph.eltwise(graph.input("x", (4, 8), "float32"), "relu"))
    home = os.environ["SERVICE_HOME"]
    if os.environ["POOLRT_SOCKET"]:
        pool = poolrt.connect()
    else:
        pool = poolrt.Pool(workers=1, threads=1, home=home, redis_url=f"unix://{home}/none.sock", arena_bytes=64 << 20)
    model = pool.load(graph)
    assert model.run(x=np.ones((4, 8), np.float32))["y"].sum() == 32

    def application(environ, start_response):
        number = int(environ["QUERY_STRING"])
        found = model.run(x=np.full((4, 8), number, np.float32))["y"].sum() / 32
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"{os.getpid()} {pool.stats()['pid']} {found:g}".encode()]
"""


def _ask(path: Path, number: int) -> tuple[int, int]:
    """Ask for a number; return the processes that answered: the service's worker and the coordinator."""
    worker, coordinator, found = ask(path, str(number)).split()
    assert int(found) == number
    return int(worker), int(coordinator)


@contextmanager
def _service(folder: Path, settings: dict[str, Any], server: Path | None, workers: int, *words: str) -> Iterator[Path]:
    """Run gunicorn with a preloaded application during the block."""
    (folder / "service.py").write_text(textwrap.dedent(_SERVICE), encoding="utf-8")
    path = folder / "http"
    options = ("--preload", "--workers", str(workers), "--bind", f"unix:{path}", "--graceful-timeout", "10", *words)
    env = {**os.environ, "SERVICE_HOME": settings["home"], "POOLRT_SOCKET": str(server or "")}
    with service(path, *options, folder=folder, environment=env, ready=lambda: listens(path)):
        yield path


@needs_gunicorn
def test_workers_of_a_preloaded_service_use_its_connection_and_survive_a_restart(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    with started(tmp_path / "s", settings) as server, _service(tmp_path, settings, server.path, 2) as path:
        assert {_ask(path, number)[1] for number in range(20)} == {server.pid}
        server.kill()
        server.start(wait=False)
        assert {_ask(path, number)[1] for number in range(20)} == {server.pid}


@needs_gunicorn
@pytest.mark.slow
@pytest.mark.parametrize("connected", [False, True], ids=["own", "connected"])
def test_four_preloaded_workers_answer_1000_requests(settings: dict[str, Any], tmp_path: Path, connected: bool) -> None:
    with started(tmp_path / "s", settings) as server:
        place = server.path if connected else None
        # Workers are replaced by further forks of the first process.
        words = ("--max-requests", "150", "--max-requests-jitter", "50")
        with _service(tmp_path, settings, place, 4, *words) as path, ThreadPoolExecutor(8) as threads:
            answers = Counter(threads.map(lambda number: _ask(path, number), range(1000)))
        assert answers.total() == 1000
        workers = {worker for worker, _ in answers}
        coordinators = {coordinator for _, coordinator in answers}
        assert len(workers) >= 4
        assert coordinators == {server.pid} if connected else len(coordinators) == len(workers)


def _sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@pytest.mark.parametrize("calls", [0, 12])
@pytest.mark.one_in(2)
def test_a_child_that_waits_for_a_call_of_its_parent_gets_an_error(settings: dict[str, Any], calls: int) -> None:
    """Given calls by message or on a ring, when a child waits for them in any way, then it raises PoolClosed at once."""
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        for _ in range(calls):
            pool.submit(_sleep, 0.0).result(BOUND_S)
        futures = [pool.submit(_sleep, 1.5), pool.submit(_sleep, 0.0)]
        mapped = pool.map(_sleep, [0.0, 0.0])

        def act() -> bool:
            ways: list[Callable[[], object]] = [
                lambda: futures[0].result(BOUND_S),
                lambda: futures[1].result(),
                lambda: futures[1].exception(),
                lambda: wait(futures),
                lambda: next(mapped),
            ]
            for way in ways:
                with pytest.raises(PoolClosed, match="belongs to the parent of this forked process"):
                    way()
            assert not futures[1].cancel()
            assert not futures[1].done()
            return pool.submit(_sleep, 0.0).result(BOUND_S) == 0.0

        assert _status(_fork(act)) == 0
        assert [future.result(BOUND_S) for future in futures] == [1.5, 0.0]
        assert list(mapped) == [0.0, 0.0]
