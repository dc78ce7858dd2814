"""Clusters on this machine: kernels created once for all workers and homes, killed workers, workers that come later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import pytest
from dask.delayed import delayed

import poolrt
import poolrt.dask
from poolrt import NativeKernel
from poolrt.cachestore import CacheStore
from poolrt.dask import ClusterError, KeysDiffer, PoolrtPlugin
from poolrt.graph.lower import lower
from poolrt.graph.wire_parser import parse
from poolrt.workers.engines.target import cpu_target
from tests.poolrt.pool.processes import wait_until

from .conftest import batches, cluster, expected, network

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

#: Seconds for what a busy machine does with processes that import Dask and Numba.
BOUND_S = 120.0


def homes(place: Path) -> Callable[[Any], str]:
    """Return the function that gives workers one of two homes, by their numbers."""
    folders = [place / "a", place / "b"]
    for folder in folders:
        folder.mkdir(mode=0o700, exist_ok=True)
    even, odd = map(str, folders)
    return lambda worker: odd if int(worker.name) % 2 else even


@pytest.fixture(scope="module")
def client(place: Path, redis_url: str, key_file: Path) -> Iterator[Any]:
    """Return the client of three workers, on two homes, with one Redis."""
    with cluster(3, place / "dask") as made:
        made.register_plugin(PoolrtPlugin(redis_url, home=homes(place), key_file=key_file))
        yield made


def addresses(client: Any) -> list[str]:
    return list(client.scheduler_info(n_workers=-1)["workers"])


def crashes(x: Any, y: Any) -> None:
    """Write far beyond the output."""
    y[1 << 44] = x[0]


def test_functions_in_tasks_and_graphs_are_created_once_in_the_cluster(client: Any) -> None:
    factor = 3.0

    @poolrt.njit
    def inner(value: Any) -> Any:
        return value * factor

    @poolrt.njit
    def compiled(a: Any) -> Any:
        total = 0.0
        for i in range(a.shape[0]):
            total += inner(a[i])
        return total

    @poolrt.vectorize
    def each(value: Any) -> Any:
        return value * factor

    @poolrt.kernel("void(f8[::1])")
    def native(a: Any) -> None:
        for i in range(a.shape[0]):
            a[i] *= 2.0

    def task() -> tuple[float, float, float]:
        a = np.ones(4)
        native(a)
        return float(compiled(a)), float(each(np.ones(2)).sum()), float(a.sum())

    # Given nothing in the cache, when all workers call the functions at the same moment
    assert len({row["home"] for row in poolrt.dask.stats(client).values()}) == 2
    calls = [client.submit(task, workers=[address], pure=False) for address in addresses(client)]
    assert client.gather(calls) == [(24.0, 6.0, 8.0)] * 3
    first = poolrt.dask.stats(client)
    assert sum(row["fallbacks"] for row in first.values()) == 0
    # Then each overload was created once, in one of the homes, and so was the kernel
    assert first.created == first.store["creations"] == first.store["entries"] == 4

    # When a graph runs on all workers
    inputs = batches(30)
    seen: list[tuple[int, int | None]] = []
    outputs = poolrt.dask.run(client, network(), inputs, progress=lambda *now: seen.append(now))
    # Then all results are right, and in order
    for found, batch in zip(outputs, inputs, strict=True):
        np.testing.assert_allclose(found["y"], expected(batch), rtol=1e-4, atol=1e-6)
    assert seen == [(done, 30) for done in range(1, 31)]
    # and each of its primitives was created once, or derived from the kernels of others
    graph = lower(parse(network().to_wire()[0]), {"cpu": cpu_target()}, 1)
    last = poolrt.dask.stats(client)
    assert last.created == last.store["creations"] == last.store["entries"]
    assert 0 < last.created - first.created <= len(set(graph.keys))


def test_a_killed_worker_costs_a_retry_and_nothing_else(client: Any) -> None:
    # Given a cluster that has all kernels
    inputs = batches(30)
    poolrt.dask.run(client, network(), inputs)
    before = poolrt.dask.stats(client)
    pids = [row["pid"] for row in before.values()]

    def killing() -> Iterator[dict[str, Any]]:
        for number, batch in enumerate(inputs):
            if number in (5, 20):
                os.kill(pids[number // 20], signal.SIGKILL)
            yield batch

    # When two of its workers are killed while a graph runs
    found = list(poolrt.dask.stream(client, network(), killing(), outputs=["y"]))
    # Then all results are right
    for outputs, batch in zip(found, inputs, strict=True):
        assert list(outputs) == ["y"]
        np.testing.assert_allclose(outputs["y"], expected(batch), rtol=1e-4, atol=1e-6)
    # and Dask's new workers have the plugin, find everything, and create nothing
    client.wait_for_workers(3, timeout=BOUND_S)
    wait_until(lambda: not {row["pid"] for row in poolrt.dask.stats(client).values()} & set(pids[:2]), "new", BOUND_S)
    for address in addresses(client):
        np.testing.assert_allclose(
            client.submit(_first, network(), inputs[0], workers=[address], pure=False).result(BOUND_S),
            expected(inputs[0]), rtol=1e-4, atol=1e-6,
        )  # fmt: skip
    assert poolrt.dask.stats(client).store["creations"] == before.store["creations"]


def _first(graph: poolrt.Graph, batch: dict[str, Any]) -> Any:
    return poolrt.Executor(graph).run(**batch)["y"]


def test_a_batch_that_kills_its_workers_is_given_up_and_the_cluster_goes_on(
    place: Path, redis_url: str, key_file: Path
) -> None:
    g = poolrt.Graph("fragile")
    kernel = NativeKernel.compile(crashes, "void(f4[::1], f4[::1])")
    g.output("y", g.call(kernel, [g.input("x", (1,))], [((1,), "float32")], name="mine"))
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), cluster(1, place / "dask-2") as client:
        client.register_plugin(PoolrtPlugin(redis_url, home=homes(place), key_file=key_file))
        with pytest.raises(ClusterError, match=r"graph fragile: batch 0 was given up after 2 attempts: .*died"):
            poolrt.dask.run(client, g, [{"x": np.ones(1, "f4")}], retries=1, timeout=BOUND_S)
        assert len(poolrt.dask.run(client, network(), batches(3), timeout=BOUND_S)) == 3


def test_a_worker_that_comes_later_has_the_plugin_and_the_graph(client: Any) -> None:
    before = set(addresses(client))
    client.cluster.scale(4)
    client.wait_for_workers(4, timeout=BOUND_S)
    (new,) = set(addresses(client)) - before
    assert poolrt.dask.stats(client)[new]["redis"].startswith("unix://")
    assert len(poolrt.dask.run(client, network(), batches(30))) == 30

    def leaving() -> Iterator[dict[str, Any]]:
        for number, batch in enumerate(batches(60)):
            if number == 20:
                client.cluster.scale(3)
            yield batch

    # When it leaves while a graph runs, its batches move to others
    for found, batch in zip(poolrt.dask.stream(client, network(), leaving()), batches(60), strict=True):
        np.testing.assert_allclose(found["y"], expected(batch), rtol=1e-4, atol=1e-6)
    wait_until(lambda: len(addresses(client)) == 3, "a worker leaves", BOUND_S)
    assert len(poolrt.dask.run(client, network(), batches(10))) == 10


def test_data_of_dask_stay_on_the_cluster(client: Any) -> None:
    inputs = batches(3)
    there = [
        client.scatter(inputs[0]["x"]),
        client.submit(_of, inputs[1]["x"]),
        delayed(inputs[2]["x"]),
    ]
    outputs = poolrt.dask.run(client, network(), [{"x": each} for each in there])
    for found, batch in zip(outputs, inputs, strict=True):
        np.testing.assert_allclose(found["y"], expected(batch), rtol=1e-4, atol=1e-6)


def _of(array: Any) -> Any:
    return array


def test_a_pool_beside_each_worker_ends_with_it(place: Path, redis_url: str, key_file: Path) -> None:
    with cluster(1, place / "dask-3") as client:
        client.register_plugin(PoolrtPlugin(redis_url, home=homes(place), key_file=key_file, workers=2))
        outputs = poolrt.dask.run(client, network(), batches(8))
        np.testing.assert_allclose(outputs[7]["y"], expected(batches(8)[7]), rtol=1e-4, atol=1e-6)
    # The last test of this process fails if processes are left.


def test_workers_with_different_keys_on_one_redis_are_refused(place: Path, redis_url: str) -> None:
    with cluster(2, place / "dask-4") as client:
        for name in ("c", "d"):
            (place / name).mkdir(mode=0o700)
        folder = str(place)
        plugin = PoolrtPlugin(redis_url, home=lambda worker: f"{folder}/{'cd'[int(worker.name)]}")
        with pytest.raises(KeysDiffer, match=r"has the signing key [0-9a-f]{16}, worker tcp.* share nothing; give all"):
            client.register_plugin(plugin)
        # One key for all of them, by the plugin itself
        for name in ("e", "f"):
            (place / name).mkdir(mode=0o700)
        key = os.urandom(32).hex()
        client.register_plugin(
            PoolrtPlugin(redis_url, home=lambda worker: f"{folder}/{'ef'[int(worker.name)]}", key=key)
        )
        assert len({row["key"] for row in poolrt.dask.stats(client).values()}) == 1
        assert (place / "e" / "signing.key").stat().st_mode & 0o777 == 0o600


def test_the_program_of_the_documentation_runs(place: Path, tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "dask.md"
    lines = page.read_text("utf-8").partition("    import numpy")[2].partition("## The plugin")[0]
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent("    import numpy" + lines))
    home = place / "documented"
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "POOLRT_HOME": str(home), "POOLRT_REDIS_URL": "", "DASK_TEMPORARY_DIRECTORY": str(place)},
        cwd=tmp_path, capture_output=True, text=True, timeout=2 * BOUND_S, check=False,
    )  # fmt: skip
    CacheStore.connect(home=str(home)).down()
    assert done.stdout.startswith("True\nworker "), done.stderr
