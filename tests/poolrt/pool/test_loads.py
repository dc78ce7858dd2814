"""Loading graphs: creation, constants in their layouts, what is kept, what is refused, and how creation fails."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.cachestore import CacheStore
from poolrt.coordinator.failed_starts import KILLED_STARTS_LIMIT, LOST_FORK_SERVERS_LIMIT
from poolrt.errors import ArenaFull, CreatorLost, GraphRefused
from poolrt.workers.desc.codec import encode
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.ipc.channel import Channel, pair
from poolrt.workers.ipc.protocol import Kind, check_message
from poolrt.workers.processes import creator
from tests.startup.shared_compiler import FOLDER

from .created import create
from .prepared import runs_on_rings
from .processes import BOUND_S, below, creation_held, family, relu_graph, wait_until, workers_of


def _sum_graph(rows: int, constants: int = 3, operation: str = "add") -> tuple[poolrt.Graph, float]:
    """Return a graph that adds constants to x, and their sum; it does not compute that with another operation."""
    graph = poolrt.Graph("sums")
    value = graph.input("x", (rows,), "float32")
    for number in range(constants):
        value = graph.binary(value, np.full(rows, number + 0.5, np.float32), operation)
    graph.output("y", value)
    return graph, sum(number + 0.5 for number in range(constants))


@pytest.fixture(scope="module")
def fresh(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings with a home of these tests' own, where each test creates kernels of its own."""
    return {**settings, "home": str(tmp_path_factory.mktemp("fresh")), "lease_s": 3 * BOUND_S}


@pytest.fixture(scope="module")
def creating(fresh: dict[str, Any]) -> Iterator[poolrt.Pool]:
    """A pool whose preloaded fork server is the first of these tests to start, and stays for the others."""
    with poolrt.Pool(workers=1, threads=1, **fresh) as pool:
        yield pool


def test_the_first_load_creates_the_next_pool_finds_files_and_the_second_load_asks_none(
    creating: poolrt.Pool, fresh: dict[str, Any]
) -> None:
    shape = (3, 5)
    before = creating.stats()["cache"]
    report = creating.load(relu_graph(shape, name="first")).report
    assert report["primitives"] == {
        "total": 1,
        "created": 1,
        "waited": 0,
        "derived": 0,
        "memory": 0,
        "files": 0,
        "prebuilt": 0,
        "redis": 0,
    }
    assert report["load_s"] > 0
    # One creation is one miss, although the coordinator and a creator have looked for it.
    cache = creating.stats()["cache"]
    assert [cache[name] - before[name] for name in ("misses", "creations", "waits")] == [1, 1, 0]
    with CacheStore.connect(fresh["redis_url"], home=fresh["home"]) as store:
        assert "first" in {entry.asked_by for entry in store.entries()}
    again = creating.load(relu_graph(shape, name="again")).report
    assert again["primitives"] == {
        "total": 1,
        "created": 0,
        "waited": 0,
        "derived": 0,
        "memory": 1,
        "files": 0,
        "prebuilt": 0,
        "redis": 0,
    }
    with poolrt.Pool(workers=1, threads=1, **fresh) as pool:
        report = pool.load(relu_graph(shape)).report
        assert report["primitives"] == {
            "total": 1,
            "created": 0,
            "waited": 0,
            "derived": 0,
            "memory": 0,
            "files": 1,
            "prebuilt": 0,
            "redis": 0,
        }
        files, redis = (pool.stats()["cache"]["tiers"][tier] for tier in ("files", "redis"))
        assert {name: files[name] - before["tiers"]["files"][name] for name in files} == {"hits": 1, "misses": 1}
        assert redis == {"hits": 0, "misses": 0}  # there is none to ask


def test_another_shape_is_derived_from_kernels_of_the_pool_or_of_the_node(
    creating: poolrt.Pool, fresh: dict[str, Any]
) -> None:
    creating.load(relu_graph((3, 8), step="logistic"))
    before = creating.stats()["cache"]
    model = creating.load(relu_graph((70, 3, 9), step="logistic"))
    nothing = {"total": 1, "created": 0, "waited": 0, "derived": 0, "memory": 0, "files": 0, "prebuilt": 0, "redis": 0}
    assert model.report["primitives"] == {**nothing, "derived": 1}
    x = np.random.default_rng().standard_normal((70, 3, 9), np.float32)
    np.testing.assert_allclose(model.run(x=x)["y"], 1 / (1 + np.exp(-x.astype(np.float64))), rtol=1e-5)
    # It is no creation, and no entry of the store; the coordinator has it for the next load
    after = creating.stats()["cache"]
    assert [after[name] - before[name] for name in ("entries", "creations", "misses", "waits")] == [0] * 4
    again = creating.load(relu_graph((70, 3, 9), step="logistic")).report["primitives"]
    assert again == {**nothing, "memory": 1}
    with poolrt.Pool(workers=1, threads=1, **fresh) as pool:
        assert pool.load(relu_graph((71,), step="logistic")).report["primitives"] == {**nothing, "derived": 1}


def test_several_loads_at_once_create_each_primitive_once(creating: poolrt.Pool, fresh: dict[str, Any]) -> None:
    reports: list[dict[str, Any]] = []
    waiting: set[str] = set()
    before = creating.stats()["cache"]["creations"]

    def load(name: str) -> None:
        graph = relu_graph((3, 6), name=name, step="tanh")
        reports.append(creating.load(graph, lambda *_: waiting.add(name)).report["primitives"])

    threads = [threading.Thread(target=load, args=(name,)) for name in "abc"]
    # Given a creation that ends only when all loads wait for it
    with creation_held(fresh["home"], relu_graph((3, 6), step="tanh")):
        for thread in threads:
            thread.start()
        wait_until(lambda: len(waiting) == len(threads), "all loads wait")
    for thread in threads:
        thread.join(BOUND_S)
    assert creating.stats()["cache"]["creations"] - before == 1
    # One has created it, the others have waited for that
    others = {"total": 1, "created": 0, "waited": 1, "derived": 0, "memory": 0, "files": 0, "prebuilt": 0, "redis": 0}
    assert sorted(reports, key=lambda report: report["waited"]) == [
        {**others, "created": 1, "waited": 0},
        others,
        others,
    ]


def test_progress_is_reported_while_primitives_are_created_and_not_when_none_is(creating: poolrt.Pool) -> None:
    reports: list[tuple[int, int, list[str]]] = []

    def progress(total: int, ready: int, names: list[str]) -> None:
        reports.append((total, ready, names))

    graph, _ = _sum_graph(64, constants=1)
    creating.load(graph, progress=progress)
    total = reports[0][0]
    assert reports[0][1] == 0
    assert reports[-1][:2] == (total, total)
    assert any("binary" in name for _, _, names in reports for name in names)
    reports.clear()
    creating.load(graph, progress=progress)
    assert reports == []


def test_constants_arrive_whole_also_when_they_are_larger_than_a_batch(
    pool: poolrt.Pool, settings: dict[str, Any]
) -> None:
    graph, total = _sum_graph(1_000_000)  # 4 MB each
    create(settings["home"], graph)
    model = pool.load(graph)
    x = np.arange(1_000_000, dtype=np.float32)
    np.testing.assert_allclose(model.run(x=x)["y"], x + total, rtol=1e-6)


def test_a_graph_without_constants_or_steps_that_compute_still_runs(pool: poolrt.Pool) -> None:
    graph = poolrt.Graph("views")
    x = graph.input("x", (2, 6), "float32")
    graph.output("y", graph.reshape(x, (3, 4)))
    value = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(pool.load(graph).run(x=value)["y"], value.reshape(3, 4))


def test_a_graph_that_cannot_be_lowered_is_refused_with_the_reason(pool: poolrt.Pool) -> None:
    graph = relu_graph()
    wire, _ = graph.to_wire()
    wire["nodes"][0][0] = "no_such_operation"
    graph.to_wire = lambda *_: (wire, [])  # type: ignore[method-assign]
    with pytest.raises(GraphRefused, match="no_such_operation"):
        pool.load(graph)
    # The pool is none the worse for it.
    assert pool.load(relu_graph()).run(x=np.ones((4, 8), np.float32))["y"].sum() == 32


def test_an_engine_that_is_not_there_is_an_error_that_says_what_is(pool: poolrt.Pool) -> None:
    graph = poolrt.Graph("far", engine="opencl:97")
    graph.output("y", graph.eltwise(graph.input("x", (4,), "float32"), "relu"))
    with pytest.raises(poolrt.errors.PoolError, match="opencl:97"):
        pool.load(graph)


def test_too_small_an_arena_is_a_clear_error_and_not_the_end(settings: dict[str, Any]) -> None:
    create(settings["home"], relu_graph((100_000,)))
    with poolrt.Pool(workers=1, threads=1, **{**settings, "arena_bytes": 1024 * 1024}) as pool:
        with pytest.raises(ArenaFull, match=r"constants of sums.*arena_bytes") as caught:
            pool.load(_sum_graph(200_000)[0])
        assert caught.value.needed > 800_000
        assert caught.value.arena == 1024 * 1024
        with pytest.raises(ArenaFull, match="arena_bytes"):
            pool.empty(1_000_000)
        model = pool.load(relu_graph((100_000,)))
        x = np.ones(100_000, np.float32)
        first = model.run(x=x)["y"]
        with pytest.raises(ArenaFull, match="relu"):
            model.run(x=x)  # input and first output fill it
        del first
        assert model.run(x=x)["y"].sum() == 100_000


def test_submitting_more_than_fits_into_memory_waits_for_what_is_under_way(settings: dict[str, Any]) -> None:
    create(settings["home"], relu_graph((200_000,)))
    with poolrt.Pool(workers=1, threads=1, **{**settings, "arena_bytes": 8 * 1024 * 1024}) as pool:
        model = pool.load(relu_graph((200_000,)))
        x = np.ones(200_000, np.float32)
        # 60 inputs of 0.8 MB each would need six times the arena; outputs are taken and dropped on the way.
        total = sum(float(y["y"][0]) for y in model.map(({"x": x} for _ in range(60)), in_flight=3))
        assert total == 60


def test_a_load_that_is_given_up_leaves_nothing_on_the_pool(creating: poolrt.Pool) -> None:
    class Interruption(Exception):
        pass

    def give_up(total: int, ready: int, names: list[str]) -> None:
        raise Interruption

    graph, _ = _sum_graph(50_000, operation="max")
    gc.collect()  # models of other tests
    used = creating.stats()["arena"]["used"]
    with pytest.raises(Interruption):
        creating.load(graph, progress=give_up)
    wait_until(lambda: creating.stats()["arena"]["used"] <= used, "constants of the load are free")
    wait_until(lambda: creating.stats()["queue"]["creating"] == 0, "creations under way end")
    assert creating.load(graph).report["primitives"]["total"] == 1


def test_a_creation_whose_creator_dies_once_is_repeated(creating: poolrt.Pool, fresh: dict[str, Any]) -> None:
    graph = relu_graph((3, 7), step="abs")
    with ThreadPoolExecutor(1) as threads:
        coordinator = creating.stats()["pid"]
        under_way = threading.Event()

        def progress(total: int, ready: int, names: list[str]) -> None:
            if names:
                under_way.set()

        # Given a creator that is at work, and cannot have ended it
        with creation_held(fresh["home"], graph):
            load = threads.submit(creating.load, graph, progress)
            assert under_way.wait(BOUND_S)
            (creator,) = below(coordinator, 3)
            # When it dies
            os.kill(creator, signal.SIGKILL)
            wait_until(lambda: creator not in below(coordinator, 3), "the creator has died")
        # Then another does its work
        assert load.result(BOUND_S).run(x=np.ones((3, 7), np.float32))["y"].sum() == 21


def test_creators_and_their_fork_server_that_are_killed_while_they_start_delay_a_load_and_fail_none(
    creating: poolrt.Pool,
) -> None:
    coordinator = creating.stats()["pid"]
    killed: list[int] = []

    def kill(level: int, total: int) -> bool:
        """Kill what is there and no worker; return whether so many were killed, or the load was faster than this process."""
        workers = workers_of(creating)
        for pid in below(coordinator, level):
            if pid not in (*workers, *killed):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
        return len(killed) >= total or load.done()

    with ThreadPoolExecutor(1) as threads:
        load = threads.submit(creating.load, relu_graph((3, 8), step="abs"))
        # More than the starts that may fail for any other reason: the preloaded fork server, then two creators
        most = LOST_FORK_SERVERS_LIMIT + 1
        wait_until(lambda: kill(2, most), "it was killed often enough")
        wait_until(lambda: kill(3, most + 2), "creators were killed")
        assert load.result(BOUND_S).run(x=np.ones((3, 8), np.float32))["y"].sum() == 24
        assert killed


def test_a_load_whose_creators_are_all_killed_at_once_is_an_error_after_some_starts(
    creating: poolrt.Pool, fresh: dict[str, Any]
) -> None:
    coordinator = creating.stats()["pid"]
    graph = relu_graph((3, 10), step="exp")
    with ThreadPoolExecutor(1) as threads, creation_held(fresh["home"], graph):  # one that gets ready creates nothing
        load = threads.submit(creating.load, graph)

        def hunt() -> bool:
            for pid in below(coordinator, 3):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return load.done()

        wait_until(hunt, "the load has ended")
        error = load.exception(BOUND_S)
    assert isinstance(error, CreatorLost)
    assert 0 < error.attempts < 2 * KILLED_STARTS_LIMIT
    assert "the last one was ended by SIGKILL" in str(error)
    # The next load tries again
    assert creating.load(graph).run(x=np.zeros((3, 10), np.float32))["y"].sum() == 30


def test_a_creation_that_kills_every_creator_is_an_error_that_names_the_primitive(
    creating: poolrt.Pool, fresh: dict[str, Any]
) -> None:
    graph = relu_graph((3, 9), step="square")
    with ThreadPoolExecutor(1) as threads:
        coordinator = creating.stats()["pid"]
        with creation_held(fresh["home"], graph):
            load = threads.submit(creating.load, graph)
            killed: list[int] = []
            seen: dict[int, float] = {}

            def hunt() -> bool:
                """Kill each creator that had the time to start: the next start is tried for longer than the creation."""
                for pid in below(coordinator, 3):
                    if pid not in killed and time.monotonic() - seen.setdefault(pid, time.monotonic()) > 0.2:
                        with suppress(ProcessLookupError):  # it may have ended since it was seen
                            os.kill(pid, signal.SIGKILL)
                            killed.append(pid)
                return load.done()

            wait_until(hunt, "the load is given up")
        with pytest.raises(CreatorLost, match="eltwise"):
            load.result()
        assert len(killed) >= 2
        # The next attempt is free of what went before.
        assert creating.load(graph).run(x=np.ones((3, 9), np.float32))["y"].sum() == 27


def test_a_creation_that_fails_is_answered_with_type_message_and_log(settings: dict[str, Any]) -> None:
    ours, theirs = pair()
    channel = Channel(ours)
    options = {"store": {"home": settings["home"], "url": settings["redis_url"]}, "verbose": "0"}
    thread = threading.Thread(target=creator.main, args=(theirs, [], options))
    thread.start()
    try:
        message = channel.receive(block=True)
        assert message is not None
        assert check_message(message) is Kind.READY
        matter = [[["md", 1]], [], encode(cpu_target()), "no such implementation"]
        channel.send([Kind.CREATE, 7, matter])
        answer = channel.receive(block=True)
        assert answer is not None
        assert check_message(answer) is Kind.BROKEN
        assert answer[1] == 7
        assert answer[2].endswith("Error")
        assert "Traceback" in answer[4]
    finally:
        channel.close()
        thread.join(BOUND_S)
    assert not thread.is_alive()


def test_creators_and_their_fork_server_do_not_outlive_the_pool(settings: dict[str, Any], tmp_path: Path) -> None:
    before = set(family())
    pool = poolrt.Pool(workers=1, threads=1, **{**settings, "home": str(tmp_path)})
    pool.load(relu_graph())
    # coordinator, fork server, worker, preloaded fork server; a creator while it is kept
    assert len(set(family()) - before) >= 4
    pool.close()
    assert set(family()) - before == set()


def test_closing_a_pool_while_it_creates_ends_at_once(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER, raising=False)  # so that a creation takes its time
    before = set(family())
    pool = poolrt.Pool(workers=1, **{**settings, "home": str(tmp_path)})
    pool.stats()
    outcome: list[BaseException] = []

    def load() -> None:
        try:
            pool.load(relu_graph())
        except poolrt.errors.PoolClosed as error:
            outcome.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    wait_until(lambda: len(set(family()) - before) >= 4, "the preloaded fork server is there")
    started = time.monotonic()
    pool.close()
    thread.join(BOUND_S)
    assert time.monotonic() - started < 3
    assert outcome
    assert set(family()) - before == set()


def test_the_kernels_of_a_model_that_is_closed_are_unmapped_in_the_workers(settings: dict[str, Any]) -> None:
    def code(pid: int) -> int:
        """Return how many pieces of anonymous memory of a process can be executed."""
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="ascii").splitlines()
        return sum(line.split()[1] == "r-xp" and len(line.split()) == 5 for line in lines)

    graph = poolrt.Graph("other")
    graph.output("y", graph.softmax(graph.eltwise(graph.input("x", (4, 8), "float32"), "tanh"), axis=-1))
    create(settings["home"], graph)
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        x = np.ones((4, 8), np.float32)
        kept = pool.load(relu_graph())
        wait_until(lambda: runs_on_rings(pool, kept, 1, x=x), "runs go by a ring")
        # The worker was sent the loop that serves rings when this process was, and does in order what it is sent
        also = pool.load(relu_graph((2, 3)))
        also.run(x=np.ones((2, 3), np.float32))
        (worker,) = workers_of(pool)
        before = code(worker)
        for _ in range(3):
            model = pool.load(graph)
            for _ in range(8):  # on a ring in the end
                model.run(x=x)
            assert code(worker) > before
            model.close()
            kept.run(x=x)
            wait_until(lambda: code(worker) == before, "the model's kernels are unmapped")
