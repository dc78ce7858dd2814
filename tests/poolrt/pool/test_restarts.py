"""A server that is killed and started again: its clients go on by themselves, within bounds, and say so once."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.connection import session
from poolrt.errors import CoordinatorLost, PoolClosed

from .created import create
from .prepared import X, load
from .processes import BOUND_S, relu_graph, until_there, wait_until
from .servers import started

_X = np.ones((4, 8), np.float32)


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "poolrt"]


def test_four_clients_of_a_server_that_is_killed_and_restarted_continue(
    settings: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with started(tmp_path / "s", settings) as server:
        pools = [poolrt.connect(server.path) for _ in range(4)]
        right = [0] * 4
        wrong: list[BaseException | str] = []
        over = threading.Event()

        def work(number: int) -> None:
            try:
                model = pools[number].load(relu_graph(name=f"model {number}"))
                while not over.is_set():
                    results = [model.run(x=_X)["y"].sum(), *(y["y"].sum() for y in model.map([{"x": _X}] * 3))]
                    if results != [32.0] * 4:
                        wrong.append(f"client {number}: {results}")
                    right[number] += 1
            except BaseException as error:  # noqa: BLE001 - checked below
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        try:
            for thread in threads:
                thread.start()
            wait_until(lambda: bool(wrong) or min(right) > 3, "all clients run")
            server.kill()
            before = list(right)
            server.start(wait=False)
            wait_until(
                lambda: bool(wrong) or all(new > old + 4 for new, old in zip(right, before, strict=True)), "they go on"
            )
        finally:
            over.set()
            for thread in threads:
                thread.join(BOUND_S)
        assert wrong == []
        assert {pool.stats()["pid"] for pool in pools} == {server.pid}
        for pool in pools:
            pool.close()
    assert len(_lines(caplog)) == 4
    for line in _lines(caplog):
        assert "the coordinator has exited" in line
        assert f"connected to the server at {tmp_path}/s again after" in line


def test_what_was_in_flight_is_repeated_with_the_values_it_had_but_no_function_is(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    graph = relu_graph()
    with started(tmp_path / "s", settings) as server, poolrt.connect(server.path) as pool:
        model = pool.load(graph)
        kept = model.run(x=_X)["y"]
        in_place = pool.empty((4, 8))
        in_place[...] = 3
        marks = tmp_path / "calls"
        held = pool.submit(exec, f"open({str(marks)!r}, 'a').write('x')\n" + until_there(tmp_path / "end"))
        wait_until(lambda: marks.exists() and marks.read_text() == "x", "the function holds the only worker")
        # These wait behind the function, and none of them has run when the server is killed.
        x = np.full((4, 8), 2, np.float32)
        copied = [model.submit(x=x) for _ in range(20)]
        shared = model.submit(x=in_place)
        x[...] = -1
        server.kill()
        server.start(wait=False)
        assert [future.result(BOUND_S)["y"].sum() for future in copied] == [64.0] * 20
        assert shared.result(BOUND_S)["y"].sum() == 96
        with pytest.raises(
            CoordinatorLost, match="a function is not called twice: submit it again if that does no harm"
        ):
            held.result(BOUND_S)
        assert marks.read_text(encoding="ascii") == "x"
        # Arrays of the old server's memory keep their values and are inputs as any other.
        assert kept.sum() == 32
        assert model.run(x=kept)["y"].sum() == 32
        assert pool.submit(pow, 2, 5).result(BOUND_S) == 32
        assert len(model.plan().steps) == 1
        assert pool.empty((4, 8)).shape == (4, 8)
        # The arrays of the old memory are not given back to the new server.
        del kept, in_place, shared, copied
        used = pool.stats()["arena"]["used"]
        assert model.run(x=_X)["y"].sum() == 32
        model.close()
        with pytest.raises(PoolClosed, match="model relu is closed"):
            model.run(x=_X)
        wait_until(lambda: pool.stats()["arena"]["used"] <= used, "nothing is left in use")


def test_a_server_that_stays_away_is_waited_for_once_and_an_idle_client_notices_its_restart(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        time.sleep(seconds)

    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))
    with started(tmp_path / "s", settings) as server:
        bounds: dict[str, Any] = {"reconnect_timeout_s": 0.5}
        with poolrt.connect(server.path, **bounds) as pool, poolrt.connect(server.path, keep_graphs=False) as light:
            model, other = pool.load(relu_graph()), light.load(relu_graph())
            server.kill()
            begin = time.monotonic()
            with pytest.raises(
                CoordinatorLost, match=r"within 0.5 s \(the setting reconnect_timeout_s\) no connection"
            ):
                model.run(x=_X)
            assert 0.5 <= time.monotonic() - begin < BOUND_S / 2
            # From then on calls fail at once, without a pause for another try, until there is a server.
            assert pauses
            pauses.clear()
            for call in (pool.stats, lambda: pool.submit(len, ""), lambda: pool.load(relu_graph()), model.plan):
                with pytest.raises(CoordinatorLost, match="no coordinator listens at"):
                    call()
            assert pauses == []
            server.start()
            assert pool.submit(pow, 2, 5).result(BOUND_S) == 32
            assert model.run(x=_X)["y"].sum() == 32
            with pytest.raises(PoolClosed, match=r"its graph was not kept \(the setting keep_graphs\): load it again"):
                other.run(x=_X)
            assert light.load(relu_graph()).run(x=_X)["y"].sum() == 32
            server.kill()
        # A closed pool stays closed
        with pytest.raises(PoolClosed, match="the pool is closed"):
            pool.stats()


def test_a_server_that_is_stopped_is_not_given_the_same_runs_again(settings: dict[str, Any], tmp_path: Path) -> None:
    """It may still write to the memory that holds the inputs, so that only the next call connects again."""
    bounds: dict[str, Any] = {"coordinator_timeout_s": 0.3, "reconnect_timeout_s": 1.0}
    with started(tmp_path / "s", settings) as server, poolrt.connect(server.path, **bounds) as pool:
        model = pool.load(relu_graph())
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(CoordinatorLost, match=r"no sign of life for 0\.3 s"):
                model.run(x=_X)
            begin = time.monotonic()
            with pytest.raises(CoordinatorLost, match="the coordinator did not start in time"):
                model.run(x=_X)
            assert time.monotonic() - begin < BOUND_S
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert model.run(x=_X)["y"].sum() == 32


@pytest.mark.parametrize("way", ["run", "submit", "map"])
@pytest.mark.one_in(2)
def test_a_run_whose_place_is_taken_while_the_server_restarts_is_done_by_the_next_one(
    settings: dict[str, Any], tmp_path: Path, way: str
) -> None:
    with started(tmp_path / "s", settings, workers=2) as server, poolrt.connect(server.path) as pool:
        model = load(pool)
        prepared = model._loaded.prepared
        assert prepared is not None
        prepared.shed()  # as a model that has not run yet on its rings
        server.kill()
        server.start(wait=False)
        if way == "run":
            found = model.run(x=X)
        elif way == "submit":
            found = model.submit(x=X).result(BOUND_S)
        else:
            (found,) = model.map([{"x": X}])
        np.testing.assert_array_equal(found["y"], np.maximum(X, 0))


_CLIENT = """
    import sys, time
    import numpy as np
    import poolrt
    pool = poolrt.connect()
    graph = poolrt.Graph("g")
    graph.output("y", graph.eltwise(graph.input("x", (4, 8), "float32"), "relu"))
    model = pool.load(graph)
    until = time.monotonic() + 100
    before = pool.stats()["pid"]
    print("ready", flush=True)
    for line in sys.stdin:
        futures = [model.submit(x=np.full((4, 8), n, np.float32)) for n in range(50)]
        assert [f.result(60)["y"].sum() for f in futures] == [32.0 * n for n in range(50)]
        while pool.stats()["pid"] == before and time.monotonic() < until:
            for n in range(200):
                assert model.run(x=np.full((4, 8), n, np.float32))["y"].sum() == 32 * n
        before = pool.stats()["pid"]
        print(before, flush=True)
"""


@pytest.mark.slow
def test_four_client_programs_survive_five_restarts(settings: dict[str, Any], tmp_path: Path) -> None:
    create(settings["home"], relu_graph())
    with started(tmp_path / "s", settings, workers=2) as server:
        env = {**os.environ, "POOLRT_SOCKET": str(server.path)}
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", textwrap.dedent(_CLIENT)]
        clients = [
            subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=env, text=True) for _ in range(4)
        ]
        try:
            assert [client.stdout.readline() for client in clients if client.stdout] == ["ready\n"] * 4
            for turn in range(5):
                for client in clients:
                    assert client.stdin
                    client.stdin.write("go\n")
                    client.stdin.flush()
                time.sleep(0.02 * turn)  # an earlier or later moment of their work
                server.kill()
                server.start(wait=False)
                pids = [int(client.stdout.readline()) for client in clients if client.stdout]
                assert set(pids) == {server.pid}
            for client in clients:
                _, errors = client.communicate(timeout=BOUND_S)
                assert client.returncode == 0
                assert errors.count("connected to the server at") == len(errors.splitlines()) == 5
        finally:
            for client in clients:
                client.kill()
                client.communicate()


def test_connect_without_a_path_uses_the_socket_of_the_settings(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOLRT_SOCKET", str(tmp_path / "s"))
    with pytest.raises(CoordinatorLost, match=f"no coordinator listens at {tmp_path}/s"):
        poolrt.connect()
    monkeypatch.delenv("POOLRT_SOCKET")
    with pytest.raises(CoordinatorLost, match=f"no coordinator listens at {tmp_path}/t"):
        poolrt.connect(socket=str(tmp_path / "t"))
    assert logging.getLogger("poolrt").level == logging.NOTSET
