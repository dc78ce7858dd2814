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
from poolrt import NativeKernel
from poolrt.errors import GraphRefused, RunFailed, WorkerLost
from tests.poolrt.graph.user_kernels import OPENCL, SIGNATURE, between_convolutions, expected, images, scale

from .created import create
from .processes import BOUND_S

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


def in_a_new_process(kernel: NativeKernel | None, home: str, folder: Path) -> dict[str, Any]:
    given = ""
    if kernel is not None:
        given = str(folder / "kernel.json")
        Path(given).write_text(json.dumps({**asdict(kernel), "code": b64encode(kernel.code).decode()}))
    command = [sys.executable, "-m", "tests.poolrt.graph.user_kernels", given, home]
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
    assert in_a_new_process(None, home, tmp_path) == {"created": 0, "right": True, "numba": False}


def test_a_kernel_that_raises_or_crashes_names_model_node_and_function(
    crashing: poolrt.Graph, settings: dict[str, Any]
) -> None:
    create(settings["home"], crashing)
    with poolrt.Pool(workers=1, threads=1, retries=0, **settings) as pool:
        model = pool.load(crashing)
        with pytest.raises(RunFailed, match=r"fragile.*step 'mine \(crashes\)' failed"):
            model.run(x=np.full(1, 2, np.float32))
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
