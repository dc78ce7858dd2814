"""Large weights of pools are in files that all processes of a node map; results are those of weights in the arena."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt

from .created import create
from .processes import wait_until
from .servers import started

ROWS, DEEP, WIDE = 8, 512, 1040
RANDOM = np.random.default_rng(5)
MATRIX = RANDOM.standard_normal((DEEP, WIDE), np.float32)
TABLE = RANDOM.standard_normal((600, WIDE), np.float32)
FEED: dict[str, Any] = {
    "x": RANDOM.standard_normal((ROWS, DEEP), np.float32),
    "ids": np.arange(ROWS, dtype=np.int64)[::-1].copy(),
}


def weighty_graph() -> poolrt.Graph:
    """Return ``y = x matrix + table[ids]``: plans rearrange the matrix and read the table as it is."""
    graph = poolrt.Graph("weighty")
    ids = graph.input("ids", (ROWS,), "int64")
    product = graph.matmul(graph.input("x", (ROWS, DEEP)), MATRIX)
    graph.output("y", graph.binary(product, graph.gather(TABLE, ids), "add"))
    return graph


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("weighty")
    create(home, weighty_graph())
    return home


@pytest.fixture
def options(kernels: Path) -> Iterator[dict[str, Any]]:
    yield {"home": str(kernels), "redis_url": f"unix://{kernels}/none.sock", "arena_bytes": 64 << 20, "threads": 1}
    for path in (kernels / "default").glob("constants/*/*"):
        path.unlink()


def files(options: dict[str, Any]) -> list[Path]:
    return sorted(Path(options["home"], "default").glob("constants/*/*"))


def loaded(pool: poolrt.Pool) -> tuple[poolrt.Model, bytes]:
    """Return the model and the result of its first run."""
    model = pool.load(weighty_graph())
    y = model.run(**FEED)["y"]
    np.testing.assert_allclose(y, FEED["x"] @ MATRIX + TABLE[FEED["ids"]], rtol=1e-3, atol=1e-3)
    return model, y.tobytes()


def shared_bytes(pool: poolrt.Pool) -> float:
    """Return the proportional memory of files of constants that the workers map, in bytes."""
    total, inside = 0, False
    for worker in pool.stats()["workers"]:
        for line in Path(f"/proc/{worker['pid']}/smaps").read_text().splitlines():
            if "-" in line.partition(" ")[0]:
                inside = "/constants/" in line
            elif inside and line.startswith("Pss:"):
                total += int(line.split()[1]) << 10
    return total


def opened(pool: poolrt.Pool) -> int:
    """Return how many files of constants the coordinator has open."""
    links = []
    for path in Path(f"/proc/{pool.stats()['pid']}/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(os.readlink(path))
    return sum("/constants/" in link for link in links)


def test_two_pools_have_one_copy_of_large_weights(options: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, **options) as first, poolrt.Pool(workers=1, **options) as second:
        _one, right = loaded(first)
        held = {path: path.stat().st_ino for path in files(options)}
        assert len(held) == 2
        _two, found = loaded(second)
        assert found == right
        assert {path: path.stat().st_ino for path in files(options)} == held, "the second pool writes none"
        # A run reads the whole matrix, and of the table a few pages.
        assert MATRIX.nbytes <= shared_bytes(first) + shared_bytes(second) < 1.15 * (MATRIX.nbytes + TABLE.nbytes)
        assert all(pool.stats()["arena"]["used"] < 1 << 20 for pool in (first, second))
    with poolrt.Pool(workers=1, constant_files_bytes=0, **options) as own:
        _three, found = loaded(own)
        assert found == right
        assert own.stats()["arena"]["used"] > MATRIX.nbytes + TABLE.nbytes


def test_a_replaced_worker_maps_weights_that_were_evicted(options: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, **options) as pool:
        model, before = loaded(pool)
        for path in files(options):
            path.unlink()
        (worker,) = pool.stats()["workers"]
        os.kill(worker["pid"], signal.SIGKILL)
        wait_until(lambda: pool.stats()["workers"][0]["pid"] != worker["pid"], "the worker is replaced")
        assert model.run(**FEED)["y"].tobytes() == before
        assert not files(options)


@pytest.mark.parametrize(
    "changes", [{"constant_files_bytes": 1 << 20}, pytest.param({"read_only": True}, marks=pytest.mark.slow)]
)
def test_weights_that_cannot_be_kept_are_in_the_arena(changes: dict[str, Any], options: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, **options, **changes) as pool:
        _model, _ = loaded(pool)
        assert pool.stats()["arena"]["used"] > MATRIX.nbytes + TABLE.nbytes
    assert not files(options)


def test_unloading_a_model_closes_its_files(options: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, **options) as pool:
        models = [pool.load(weighty_graph()) for _ in range(2)]
        assert opened(pool) == 4
        for number in range(len(models)):
            models[number].run(**FEED)
        del models
        wait_until(lambda: not opened(pool), "the files are closed")
        wait_until(lambda: not shared_bytes(pool), "the worker maps none of them")


def test_a_server_that_is_restarted_has_the_weights_again(options: dict[str, Any], tmp_path: Path) -> None:
    with started(tmp_path / "s", options) as server, poolrt.connect(server.path) as pool:
        model, before = loaded(pool)
        for path in files(options):
            path.unlink()
        server.kill()
        server.start()
        assert model.run(**FEED)["y"].tobytes() == before
        assert len(files(options)) == 2


@pytest.mark.slow
def test_loads_amid_killed_workers_have_right_results_and_leave_no_file_open(options: dict[str, Any]) -> None:
    draw, over = random.Random(11), threading.Event()
    with poolrt.Pool(workers=3, **{**options, "retries": 1000}) as pool:

        def kill() -> None:
            while not over.wait(draw.uniform(0.01, 0.2)):
                pids = [worker["pid"] for worker in pool.stats()["workers"] if worker["pid"]]
                if pids:
                    with suppress(ProcessLookupError):
                        os.kill(draw.choice(pids), signal.SIGKILL)
                if draw.random() < 0.3:
                    for path in files(options):
                        path.unlink(missing_ok=True)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            results = {loaded(pool)[1] for _ in range(40)}
        finally:
            over.set()
            killer.join()
        assert len(results) == 1
        gc.collect()
        wait_until(lambda: not opened(pool), "the files are closed")
    assert not [path for path in files(options) if path.suffix == ".part"]
