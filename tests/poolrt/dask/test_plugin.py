"""The plugin and runs, on a worker in the process of the test: settings, errors, keys, an unreachable Redis."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
import poolrt.dask
from poolrt.cachestore import KeyFileRefused
from poolrt.dask import ClusterError, KeysDiffer, PoolrtPlugin, SettingsClash
from poolrt.dask.runs import digest_of
from poolrt.dask.worker_settings import AdoptedSettings, install_key
from poolrt.numba.process_store import process_store
from poolrt.settings import SettingsError
from tests.poolrt.pool.created import create

from .conftest import batches, cluster, network, small

_KEY = "3f9c0d1e2f30415a6b7c8d9e0f1a2b3c"


#: Ends the task `_wait`.
_ended = threading.Event()


def _wait() -> None:
    _ended.wait(60)


@pytest.fixture
def client(alone: Path, tmp_path: Path) -> Iterator[Any]:
    """Return the client of one worker, which is in this process and has the kernel of a graph in its home."""
    create(alone, small())
    with cluster(1, tmp_path / "dask", processes=False, protocol="inproc") as made:
        yield made


@pytest.mark.filterwarnings("ignore:.*cannot be reached from Dask workers:RuntimeWarning")
def test_a_worker_runs_a_graph_with_the_plugins_settings_until_it_is_removed(alone: Path, client: Any) -> None:
    # Given a Redis that cannot be reached, and the counts of tests before this one in the same process
    created_before = poolrt.numba.stats()["created"] + poolrt.kernels.stats()["created"]
    url = f"unix://{alone}/none.sock?password=secret"
    client.register_plugin(PoolrtPlugin(url, home=alone, namespace="ours"))
    (warning,) = [event for _, event in client.get_events("warn")]
    text = pickle.loads(warning["message"])  # noqa: S301
    assert "cannot be reached" in text
    assert "secret" not in text
    # When the settings change before a store is opened, the new ones hold
    client.register_plugin(PoolrtPlugin(url, home=alone, namespace="theirs"))
    assert os.environ["POOLRT_NAMESPACE"] == "theirs"
    client.unregister_worker_plugin("poolrt")
    assert os.environ["POOLRT_NAMESPACE"] == ""
    # Then a graph runs without Redis, and creates what it finds in files
    client.register_plugin(PoolrtPlugin(url, home=alone, namespace="default"))
    inputs = batches(12)
    seen: list[tuple[int, int | None]] = []
    outputs = poolrt.dask.run(client, small(), iter(inputs), progress=lambda *now: seen.append(now), in_flight=2)
    for found, batch in zip(outputs, inputs, strict=True):
        np.testing.assert_array_equal(found["y"], np.maximum(batch["x"], 0))
    assert seen == [(done, None) for done in range(1, 13)]
    # With a store, other settings clash
    clash = r"namespace 'default' already, not with 'ours'; give the plugin the same settings, or call"
    with pytest.raises(SettingsClash, match=clash):
        client.register_plugin(PoolrtPlugin(url, home=alone, namespace="ours"))
    with pytest.raises(ClusterError, match=rf"cannot be used: SettingsClash: .*{clash}"):
        poolrt.dask.run(client, small(), inputs)
    client.register_plugin(PoolrtPlugin(url, home=alone))
    poolrt.dask.run(client, small(), inputs)
    stats = poolrt.dask.stats(client)
    assert stats.created == created_before
    assert stats.store["degraded"] > 0
    assert str(stats).splitlines()[0].split() == [
        "worker",
        *("created", "found", "waited", "hits", "fallbacks", "redis", "key", "home"),
    ]
    (row,) = stats.values()
    assert row["home"] == str(alone)
    assert "does not answer" in row["redis"]
    assert row["found"] > 0
    # Errors of the graph and of batches reach the client as they are
    with pytest.raises(poolrt.GraphError, match=r"matmul .* expect 9 rows"):
        poolrt.dask.run(client, network(), [{"x": np.zeros((4, 9), "f4")}])
    with pytest.raises(TypeError, match="input x: expect dtype float32, got float64"):
        poolrt.dask.run(client, small(), [{"x": np.zeros((4, 8))}])
    with pytest.raises(ValueError, match=r"batch 1: graph small takes the inputs? x float32\[4, 8\]"):
        poolrt.dask.run(client, small(), [batches(1)[0], {"z": 1}])
    with pytest.raises(TypeError, match="batch 0: expect a dict of inputs by name"):
        poolrt.dask.run(client, small(), [np.zeros((4, 8))])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="outputs: graph small has h, y, got 'yy'"):
        poolrt.dask.run(client, small(), [], outputs=["yy"])
    # A batch that never ends is given up
    try:
        waits = client.submit(_wait, pure=False)
        with pytest.raises(ClusterError, match=r"graph small: batch 0 was not done within 0.2 s on 1 workers"):
            poolrt.dask.run(client, small(), [{"x": waits}], timeout=0.2)
    finally:
        _ended.set()
    # Without the plugin, its tasks say so
    client.unregister_worker_plugin("poolrt")
    with pytest.raises(ClusterError, match=r"has no poolrt plugin; call client.register_plugin"):
        poolrt.dask.stats(client)


def test_what_is_no_client_that_works_is_refused(client: Any) -> None:
    given: Any
    for given, what in ((None, "None"), (3, "int")):
        for call in (poolrt.dask.stats, lambda each: poolrt.dask.run(each, small(), [])):
            with pytest.raises(
                TypeError, match=f"client: expect a dask.distributed.Client of synchronous code, got {what}"
            ):
                call(given)
    client.close()
    for call in (poolrt.dask.stats, lambda each: poolrt.dask.run(each, small(), [])):
        with pytest.raises(ClusterError, match="client: it is closed: make a new Client"):
            call(client)


def test_a_plugin_travels_without_its_runtime_and_shows_no_secret(alone: Path) -> None:
    plugin = PoolrtPlugin("redis://user:secret@host/0", home="~/cache", key=_KEY, threads=2)
    assert repr(plugin) == "<PoolrtPlugin: home, redis_url>"
    copy = pickle.loads(pickle.dumps(plugin))  # noqa: S301
    assert vars(copy).keys() == vars(plugin).keys()
    with pytest.raises(ClusterError, match="worker a cannot be used: not"):
        copy._set_up.set()
        copy._failure = "not set up"
        copy.runtime("a")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"redis_url": "host:6379"}, "redis_url: expected URL starting with"),
        ({"namespace": "a/b"}, "namespace: expected 1 to 64"),
        ({"threads": -1}, "threads: expected"),
        ({"workers": "many"}, "workers: expected"),
        ({"key": "short"}, "key: a signing key has 16 to 4096 bytes, not 5"),
        ({"key": "0123456789abcdef" * 2}, "key: its content could be guessed"),
        ({"key": 5}, "key: expected text or bytes, got int"),
        ({"key": _KEY, "key_file": "/k"}, "key: cannot be given with key_file"),
        ({"key": _KEY, "read_only": True}, "key: cannot be given with read_only"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        PoolrtPlugin(**given)
    assert _KEY not in str(caught.value)


def test_settings_that_clash_with_a_store_in_use_change_nothing(alone: Path) -> None:
    AdoptedSettings({"home": str(alone), "redis_url": f"unix://{alone}/a"})
    process_store()
    before = {name: value for name, value in os.environ.items() if name.startswith("POOLRT_")}
    with pytest.raises(SettingsClash, match=r"url unix://\S+/a already, not with unix://\S+/b"):
        AdoptedSettings({"redis_url": f"unix://{alone}/b"})
    assert before == {name: value for name, value in os.environ.items() if name.startswith("POOLRT_")}
    AdoptedSettings({"redis_url": f"unix://{alone}/a"}).withdraw()
    assert os.environ["POOLRT_REDIS_URL"] == f"unix://{alone}/a"


def test_a_key_is_installed_once_and_another_one_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for _ in range(2):
        install_key(str(home), _KEY.encode())
    assert (home / "signing.key").read_text() == _KEY + "\n"
    assert (home / "signing.key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(KeysDiffer, match=r"signing.key has another signing key than the plugin"):
        install_key(str(home), os.urandom(32).hex().encode())
    (home / "signing.key").chmod(0o644)
    with pytest.raises(KeyFileRefused):
        install_key(str(home), _KEY.encode())


def test_equal_graphs_have_equal_digests_and_others_do_not() -> None:
    g = poolrt.Graph("net")
    g.output("y", g.eltwise(g.input("x", (4, 8)), "relu"))
    assert digest_of(network()) == digest_of(network())
    assert len({digest_of(network()), digest_of(network("other")), digest_of(g)}) == 3


def test_poolrt_imports_no_dask_and_says_how_to_install_it() -> None:
    code = """
import sys, poolrt, poolrt.dask
assert not {"dask", "distributed"} & sys.modules.keys()
sys.modules["distributed"] = None
try:
    poolrt.dask.PoolrtPlugin
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "poolrt.dask.PoolrtPlugin needs Dask: run pip install 'poolrt[dask]'\n", done.stderr
