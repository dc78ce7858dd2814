"""`poolrt serve --metrics`: what Prometheus reads of a pool that computes, and addresses that cannot be used."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import poolrt
from poolrt.cli.served_metrics import MetricsServer
from tests.poolrt.pool.created import create
from tests.poolrt.pool.processes import relu_graph, workers_of

from .test_serve import BOUND_S, Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


def _samples(url: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the samples at an address: name -> values of its labels -> number."""
    with urllib.request.urlopen(url, timeout=BOUND_S) as answer:
        text = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_metrics_are_those_of_the_pool_and_its_store(place: Place) -> None:
    graph = relu_graph()
    create(place.folder / "home", graph)
    server, said = place.serve("--socket", str(place.socket), "--workers", "2", "--metrics", "127.0.0.1:0")
    with poolrt.connect(place.socket) as pool:
        model = pool.load(graph)
        for _ in range(9):
            model.run(x=np.ones((4, 8), np.float32))
        kept = pool.empty((1 << 18,), "float32")
        workers_of(pool)  # all of them are up
        expected = pool.stats()
        found = _samples(said["metrics"])
    nothing: tuple[str, ...] = ()
    assert found["poolrt_up"][nothing] == 1
    assert found["poolrt_clients"][nothing] == 1
    assert sum(found["poolrt_workers"].values()) == 2
    assert sum(found["poolrt_worker_runs_total"].values()) == 9
    pids = {(str(worker["pid"]),) for worker in expected["workers"]}
    for name in ("poolrt_worker_runs_total", "poolrt_worker_resident_bytes", "poolrt_worker_cpu_seconds_total"):
        assert found[name].keys() == pids
    assert min(found["poolrt_worker_resident_bytes"].values()) > 1 << 20
    assert found["poolrt_arena_bytes"][nothing] == 64 << 20
    assert kept.nbytes <= found["poolrt_arena_used_bytes"][nothing] < 64 << 20
    assert found["poolrt_cache_hits_total"].keys() == {("memory",), ("files",), ("prebuilt",), ("redis",)}
    assert found["poolrt_cache_entries"][nothing] == expected["cache"]["entries"] > 0
    assert found["poolrt_cache_misses_total"][nothing] == expected["cache"]["misses"]
    # And the server is gone at once
    server.terminate()
    assert server.wait(BOUND_S) == 0
    with pytest.raises(OSError, match="refused"):
        _samples(said["metrics"])


def test_clients_that_say_nothing_are_bounded(place: Place) -> None:
    server, said = place.serve("--socket", str(place.socket), "--metrics", "[::1]:0")
    port = int(said["metrics"].rpartition(":")[2].removesuffix("/metrics"))
    with ExitStack() as silent:
        # Given more connections than the server answers, all without a word
        connections = [silent.enter_context(socket.create_connection(("::1", port), BOUND_S)) for _ in range(12)]
        # When they have been closed for their silence
        begin = time.monotonic()
        for connection in connections:
            assert connection.recv(1) == b""
        assert time.monotonic() - begin < 30
    # Then others are answered
    assert _samples(said["metrics"])["poolrt_up"] == {(): 1}
    assert server.poll() is None


def test_a_pool_that_does_not_answer_is_down(tmp_path: Path) -> None:
    metrics = MetricsServer("127.0.0.1", 0, tmp_path / "absent")
    metrics.start()
    assert _samples(metrics.url) == {"poolrt_up": {(): 0}}
    metrics.close()


def test_many_read_at_the_same_time(place: Place) -> None:
    _, said = place.serve("--socket", str(place.socket), "--metrics", "localhost:0")
    until = time.monotonic() + BOUND_S
    while True:
        results: list[float] = []
        threads = [
            threading.Thread(target=lambda found=results: found.append(_samples(said["metrics"])["poolrt_up"][()]))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_S)
        assert len(results) == 6
        # A pool without a processor for five seconds is down, as it is documented.
        if results == [1.0] * 6 or time.monotonic() > until:
            break
    assert results == [1.0] * 6


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("9464", "argument --metrics: expected HOST:PORT, such as 127.0.0.1:9464 or [::1]:9464, got 9464"),
        ("::1:9464", "argument --metrics: expected HOST:PORT, such as 127.0.0.1:9464 or [::1]:9464, got ::1:9464"),
        (
            "127.0.0.1:70000",
            "argument --metrics: expected HOST:PORT, such as 127.0.0.1:9464 or [::1]:9464, got 127.0.0.1:70000",
        ),
        (
            "127.0.0.1:http",
            "argument --metrics: expected HOST:PORT, such as 127.0.0.1:9464 or [::1]:9464, got 127.0.0.1:http",
        ),
    ],
)
def test_a_wrong_address_is_wrong_usage(place: Place, address: str, line: str) -> None:
    done = place.call("serve", "--metrics", address)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"poolrt: {line} (see poolrt serve --help)\n"


def test_an_address_in_use_fails_and_leaves_nothing(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = place.call("serve", "--socket", str(place.socket), "--metrics", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert done.stderr == (
        f"poolrt: cannot listen at 127.0.0.1:{port} for metrics: Address already in use; choose another --metrics\n"
    )
    assert not place.socket.exists()


def test_without_the_library_the_error_names_the_extra(place: Place) -> None:
    code = "import sys; sys.modules['prometheus_client'] = None\nfrom poolrt.cli import main; sys.exit(main())"
    done = place.call("serve", "--metrics", "127.0.0.1:0", code=code)
    assert done.returncode == 1
    assert done.stderr == "poolrt: --metrics needs the prometheus-client package: pip install 'poolrt[metrics]'\n"
