"""Kernels of users on pools: between built-in primitives, warm in new processes, refused, raising and crashing."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt import NativeKernel, OpenClKernel
from poolrt.errors import CreationFailed, GraphRefused, RunFailed, WorkerLost
from tests.poolrt.graph.typed_calls import SHAPES
from tests.poolrt.graph.user_kernels import OPENCL, SIGNATURE, between_convolutions, expected, images, scale

from .created import create
from .processes import BOUND_S, workers_of

#: Seconds for a program that starts a pool, on a busy machine.
_PROGRAM_S = 3 * BOUND_S


def crashes(x: Any, y: Any) -> None:
    """Write far beyond the output if the input is negative."""
    y[0] = x[0]
    if x[0] < 0:
        y[1 << 44] = 1
    if x[0] > 1:
        raise ValueError("large")


@pytest.fixture(scope="module")
def kernel() -> NativeKernel:
    return NativeKernel.compile(scale, SIGNATURE)


@pytest.fixture(scope="module")
def crashing() -> poolrt.Graph:
    g = poolrt.Graph("fragile")
    kernel = NativeKernel.compile(crashes, "void(f4[::1], f4[::1])")
    g.output("y", g.call(kernel, [g.input("x", (1,))], [((1,), "float32")], name="mine"))
    return g


def in_a_new_process(kernel: NativeKernel | None, home: str, folder: Path, within: str = "pool") -> dict[str, Any]:
    given = ""
    if kernel is not None:
        given = str(folder / "kernel.json")
        Path(given).write_text(json.dumps({**asdict(kernel), "code": b64encode(kernel.code).decode()}))
    command = [sys.executable, "-m", "tests.poolrt.graph.user_kernels", given, home, within]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_S, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_native_kernel_between_convolutions_is_right_on_pools_and_warm_in_a_new_process(
    kernel: NativeKernel, settings: dict[str, Any], tmp_path: Path
) -> None:
    graph, x = between_convolutions(kernel), images()
    for threads in (1, 2):
        create(settings["home"], graph, threads=threads)
        with poolrt.Pool(workers=1, threads=threads, **settings) as pool:
            model = pool.load(graph)
            assert model.report["primitives"]["created"] == 0
            np.testing.assert_allclose(model.run(x=x)["y"], expected(x), rtol=1e-4, atol=1e-5)
    # The new process has the kernel's code alone, and no compiler.
    found = in_a_new_process(kernel, settings["home"], tmp_path)
    assert found == {"created": 0, "right": True, "numba": False}


@pytest.mark.slow
def test_a_pool_creates_the_primitive_of_a_call_itself(kernel: NativeKernel, tmp_path: Path) -> None:
    graph, home = between_convolutions(kernel), str(tmp_path)
    with poolrt.Pool(workers=1, threads=1, home=home, redis_url=f"unix://{home}/none.sock") as pool:
        model = pool.load(graph)
        assert model.report["primitives"]["created"] > 1
        np.testing.assert_allclose(model.run(x=images())["y"], expected(images()), rtol=1e-4, atol=1e-5)
    assert in_a_new_process(kernel, home, tmp_path) == {"created": 0, "right": True, "numba": False}


@pytest.mark.slow
def test_an_opencl_kernel_between_convolutions_is_right_and_warm_in_a_new_process(device: str, tmp_path: Path) -> None:
    home, x = str(tmp_path), images()
    graph = between_convolutions(OPENCL, "opencl")
    for threads in (1, 2):
        with poolrt.Pool(workers=1, threads=threads, home=home, redis_url=f"unix://{home}/none.sock") as pool:
            model = pool.load(graph)
            assert (model.report["primitives"]["created"] > 0) == (threads == 1)
            np.testing.assert_allclose(model.run(x=x)["y"], expected(x), rtol=1e-4, atol=1e-5)
    warm = {"created": 0, "right": True, "numba": False}
    assert in_a_new_process(None, home, tmp_path) == warm
    assert in_a_new_process(None, home, tmp_path, "executor") == warm
    (alone := tmp_path / "alone").mkdir(mode=0o700)
    cold = in_a_new_process(None, str(alone), tmp_path, "executor")
    assert cold.pop("created") > 1
    assert cold == {"right": True, "numba": False}


@pytest.mark.slow
def test_each_work_group_of_an_opencl_kernel_has_local_memory_of_its_own(device: str, tmp_path: Path) -> None:
    """Half of such runs were wrong on PoCL, whose threads shared the memory."""
    g, x, shift = poolrt.Graph("many groups", "opencl"), images(4096), np.arange(8, dtype=np.float32)
    called = g.call(OPENCL, [g.input("x", x.shape), shift], [(x.shape, "float32")], scalars=[36, 2.0])
    g.output("y", called)
    with poolrt.Pool(workers=1, home=str(tmp_path), redis_url=f"unix://{tmp_path}/none.sock") as pool:
        model = pool.load(g)
        for _ in range(20):
            np.testing.assert_allclose(model.run(x=x)["y"], x * 2 + shift[:, None, None], rtol=1e-6)


def test_a_kernel_that_raises_or_crashes_names_model_node_and_function(
    crashing: poolrt.Graph, settings: dict[str, Any]
) -> None:
    create(settings["home"], crashing)
    with poolrt.Pool(workers=1, threads=1, retries=0, **settings) as pool:
        model = pool.load(crashing)
        with pytest.raises(RunFailed, match=r"fragile.*step 'mine \(crashes\)' failed: ValueError: large$") as caught:
            model.run(x=np.full(1, 2, np.float32))
        cause = caught.value.__cause__
        assert (type(cause), cause and cause.args) == (ValueError, ("large",))
        with pytest.raises(WorkerLost, match=r"fragile.* calls kernels of its user: node 'mine \(crashes\)'"):
            model.run(x=np.full(1, -1, np.float32))
        # The pool goes on, and so does the model.
        assert model.run(x=np.full(1, 0.5, np.float32))["y"][0] == 0.5


def test_a_server_without_functions_refuses_graphs_with_calls(crashing: poolrt.Graph, settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, functions=False, **settings) as pool:
        text = (
            r"graph 'fragile': node 'mine \(crashes\)' has code, and functions are turned off \(the setting functions\)"
        )
        with pytest.raises(GraphRefused, match=text):
            pool.load(crashing)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["native", "opencl"])
def test_shapes_and_data_types_are_right_on_executors_and_pools_and_warm_in_new_processes(
    kind: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOLRT_HOME", str(tmp_path))
    monkeypatch.setenv("POOLRT_REDIS_URL", f"unix://{tmp_path}/none.sock")
    created = {}
    for number, threads in enumerate((0, 1, 2, 0, 1, 2)):
        command = [sys.executable, "-m", "tests.poolrt.graph.typed_calls", kind, str(threads), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        created[number] = found.pop("created")
        assert found == {"right": True, "runs": len(SHAPES), "numba": kind == "native" and number == 0}
    assert created[0] > 0
    assert [created[number] for number in (3, 4, 5)] == [0, 0, 0]


OPENCL_CRASH = """
__kernel void crashes(__global const float *x, __global float *y) {
    y[0] = x[0];
    if (x[0] < 0) y[1L << 44] = 1;
}
"""


@pytest.mark.slow
def test_an_opencl_kernel_that_crashes_names_itself_and_costs_one_worker(device: str, tmp_path: Path) -> None:
    g = poolrt.Graph("fragile", "opencl")
    kernel = OpenClKernel(OPENCL_CRASH, "crashes")
    g.output("y", g.call(kernel, [g.input("x", (1,))], [((1,), "float32")], name="mine"))
    none = f"unix://{tmp_path}/none.sock"
    with poolrt.Pool(workers=2, threads=1, retries=0, home=str(tmp_path), redis_url=none) as pool:
        model = pool.load(g)
        assert model.run(x=np.full(1, 0.5, np.float32))["y"][0] == 0.5
        before = set(workers_of(pool))
        with pytest.raises(WorkerLost, match=r"fragile.* calls kernels of its user: node 'mine \(crashes\)'"):
            model.run(x=np.full(1, -1, np.float32))
        assert model.run(x=np.full(1, 0.5, np.float32))["y"][0] == 0.5
        assert len(before.intersection(workers_of(pool))) == 1


@pytest.mark.slow
def test_an_opencl_kernel_that_does_not_build_fails_the_load_with_the_compilers_log(
    device: str, tmp_path: Path
) -> None:
    g = poolrt.Graph("broken", "opencl")
    kernel = OpenClKernel("__kernel void f(__global float *x, __global float *y) { nonsense_here; }", "f")
    g.output("y", g.call(kernel, [g.input("x", (1,))], [((1,), "float32")], name="mine"))
    with poolrt.Pool(workers=1, threads=1, home=str(tmp_path), redis_url=f"unix://{tmp_path}/none.sock") as pool:
        for _ in range(2):
            with pytest.raises(CreationFailed) as caught:
                pool.load(g)
            assert "undeclared identifier 'nonsense_here'" in str(caught.value)
