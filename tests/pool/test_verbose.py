"""Verbose lines of a pool's processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poolrt


def graph() -> poolrt.Graph:
    g = poolrt.Graph("net")
    weights = np.ones((32, 32, 3, 3), np.float32)
    x = g.convolution(g.input("x", (1, 32, 8, 8)), weights, padding=1, name="conv")
    g.output("y", g.eltwise(x, "tanh", name="act"))
    return g


def lines_of(capfd: pytest.CaptureFixture[str], runs: int, **settings: Any) -> list[list[str]]:
    """Return the fields of the lines that a pool writes for as many runs, without first lines of processes."""
    x = np.ones((1, 32, 8, 8), np.float32)
    with poolrt.Pool(workers=2, **settings) as pool:
        model = pool.load(graph(), progress=False)
        for future in [model.submit(x=x) for _ in range(runs)]:
            future.result(60)
    fields = [line.split(",") for line in capfd.readouterr().err.splitlines()]
    assert all(line[0] == "poolrt_verbose" for line in fields), fields
    return [line for line in fields if line[1] != "info"]


def test_creators_and_workers_write_a_line_for_each_creation_and_each_step_of_each_run(
    settings: dict[str, Any], capfd: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Given a cache folder of its own, so that everything is created
    fresh = {**settings, "home": str(tmp_path_factory.mktemp("home")), "verbose": "profile"}
    lines = lines_of(capfd, 5, threads=1, **fresh)
    # Then each distinct primitive was created once
    created = [line[2:-1] for line in lines if line[1] == "create:cache_miss"]
    assert sorted(line[1] for line in created) == ["convolution", "eltwise", "reorder", "reorder", "reorder"]
    # And each step of each run, and the reorder of the weights, has been executed with the same fields
    executed = [line[2:-1] for line in lines if line[1] == "exec"]
    assert sorted({line[1] for line in executed}) == ["convolution", "eltwise", "reorder"]
    assert len(executed) == 5 * 4 + 1
    assert all(line in created for line in executed)
    assert len(lines) == len(created) + len(executed)
    (problem,) = {line[7] for line in executed if line[1] == "convolution"}
    assert problem == "mb1_ic32oc32_ih8oh8kh3sh1dh0ph1_iw8ow8kw3sw1dw0pw1"


def test_a_pool_of_several_threads_follows_the_level_of_the_interface_before_that_of_the_environment(
    settings: dict[str, Any], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOLRT_VERBOSE", "profile")
    try:
        poolrt.set_verbose("profile_exec")
        lines = lines_of(capfd, 2, threads=2, **settings)
        assert [line[1] for line in lines] == ["exec"] * (2 * 4 + 1)
        assert all(float(line[-1]) > 0 for line in lines)
    finally:
        poolrt.set_verbose(0)
