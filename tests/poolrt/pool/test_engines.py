"""Models whose steps run on several engines of one worker."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt

from .processes import BOUND_S, relu_graph, workers_of


def mixed_graph(engine: str) -> poolrt.Graph:
    random = np.random.default_rng(0)
    g = poolrt.Graph("mixed")
    x = g.input("x", (6, 40))
    h = g.matmul(g.eltwise(x, "tanh"), random.standard_normal((40, 24)), engine=engine)
    g.output("y", g.softmax(g.binary(h, random.standard_normal(24), "add", engine=engine)))
    return g


def computed(x: Any) -> Any:
    random = np.random.default_rng(0)
    w, b = random.standard_normal((40, 24)), random.standard_normal(24)
    h = np.exp(np.tanh(x) @ w + b)
    return h / h.sum(1, keepdims=True)


def test_steps_of_one_model_run_on_the_processor_and_on_a_device(device: str, settings: dict[str, Any]) -> None:
    x = np.random.default_rng(1).standard_normal((6, 40)).astype(np.float32)
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        model = pool.load(mixed_graph("opencl"))
        futures = [model.submit(x=x) for _ in range(8)]
        for future in futures:
            np.testing.assert_allclose(future.result(BOUND_S)["y"], computed(x), rtol=1e-4, atol=1e-6)
        # A second load creates nothing, on neither engine.
        assert pool.load(mixed_graph("opencl:0")).report["primitives"]["created"] == 0


def test_a_node_on_a_device_that_is_not_there_is_refused(device: str, settings: dict[str, Any]) -> None:
    with (
        poolrt.Pool(workers=1, threads=1, **settings) as pool,
        pytest.raises(poolrt.errors.PoolError, match="there is no engine opencl:99"),
    ):
        pool.load(mixed_graph("opencl:99"))


def test_a_graph_that_names_too_many_engines_is_refused(pool: poolrt.Pool) -> None:
    g = poolrt.Graph("many")
    x = g.input("x", (4,))
    for number in range(17):
        x = g.eltwise(x, "relu", engine=f"opencl:{number}")
    g.output("y", x)
    with pytest.raises(poolrt.errors.GraphRefused, match="engine: 18 engines are named, more than 16"):
        pool.load(g)


@pytest.mark.usefixtures("device")
def test_a_worker_that_is_killed_when_the_pool_closes_leaves_no_folder_of_pocl(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with poolrt.Pool(workers=1, engine="opencl", **settings) as pool:
        pool.load(relu_graph()).run(x=np.ones((4, 8), np.float32))
        assert list(tmp_path.glob("poolrt-pocl-*")) != []
        for pid in workers_of(pool):
            os.kill(pid, signal.SIGSTOP)  # as on a machine on which it gets no processor in time
    assert list(tmp_path.iterdir()) == []
