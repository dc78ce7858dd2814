"""Verbose lines of a pool's processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from tests.workers.verbose.lines import Line, parsed

from .created import create


def graph(convolved: bool) -> poolrt.Graph:
    g = poolrt.Graph("net")
    x = g.input("x", (1, 32, 8, 8))
    if convolved:
        x = g.convolution(x, np.ones((32, 32, 3, 3), np.float32), padding=1, name="conv")
    g.output("y", g.eltwise(x, "tanh", name="act"))
    return g


def lines_of(net: poolrt.Graph, runs: int, **settings: Any) -> list[Line]:
    """Return the lines that a pool of two workers writes for as many runs, into one pipe that all its processes share."""
    x = np.ones((1, 32, 8, 8), np.float32)
    received, error = os.pipe()
    before, written = os.dup(2), bytearray()

    def read() -> None:
        while some := os.read(received, 4096):
            written.extend(some)

    reader = threading.Thread(target=read, daemon=True)
    os.dup2(error, 2)
    os.close(error)
    try:
        reader.start()
        with poolrt.Pool(workers=2, **settings) as pool:
            model = pool.load(net, progress=False)
            for future in [model.submit(x=x) for _ in range(runs)]:
                future.result(60)
    finally:
        os.dup2(before, 2)
        os.close(before)
    # Nothing of the pool is left that could hold the other end.
    reader.join(60)
    assert not reader.is_alive()
    os.close(received)
    return parsed(written.decode())


def test_creators_and_workers_write_a_line_for_each_creation_and_each_step_of_each_run(
    settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Given a cache folder of its own, so that everything is created
    fresh = {**settings, "home": str(tmp_path_factory.mktemp("home")), "verbose": "profile"}
    lines = lines_of(graph(convolved=True), 20, threads=1, **fresh)
    # Then each distinct primitive was created once; those of rings may be, if the runs last until a ring is granted
    lines = [line for line in lines if line.fields[1] != "ring_ends"]
    created = [line for line in lines if line.operation == "create:cache_miss"]
    assert sorted(line.fields[1] for line in created) == ["convolution", "eltwise", "reorder", "reorder", "reorder"]
    # And each step of each run, and the reorder of the weights, has been executed with the same fields
    executed = [line for line in lines if line.operation == "exec"]
    assert sorted({line.fields[1] for line in executed}) == ["convolution", "eltwise", "reorder"]
    assert len(executed) == 20 * 4 + 1
    assert {line.text for line in executed} == {line.text for line in created}
    assert len(lines) == len(created) + len(executed)
    (problem,) = {line.fields[-1] for line in executed if line.fields[1] == "convolution"}
    assert problem == "mb1_ic32oc32_ih8oh8kh3sh1dh0ph1_iw8ow8kw3sw1dw0pw1"


@pytest.mark.parametrize("how", ["begun without", "closed", "closed with input and output"])
def test_a_program_without_standard_error_has_a_pool_that_works(
    how: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    create(settings["home"], graph(convolved=False))
    # Given a file that got the number of standard error
    closed = {"closed": [2], "closed with input and output": [0, 1, 2]}.get(how, [])
    code = f"""
import fcntl, os
kept = os.fdopen(fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 10), "w")
for number in {closed!r}:
    os.close(number)
assert [os.open(os.devnull, os.O_RDWR) for _ in {closed[:-1]!r}] == {closed[:-1]!r}
file = open({str(tmp_path / "file")!r}, "w")
import numpy, poolrt
g = poolrt.Graph("net")
g.output("y", g.eltwise(g.input("x", (1, 32, 8, 8)), "tanh", name="act"))
with poolrt.Pool(workers=1, threads=1, verbose="profile", **{settings!r}) as pool:
    y = pool.load(g, progress=False).run(x=numpy.ones((1, 32, 8, 8), numpy.float32))["y"]
    print(file.fileno(), float(y.sum()), file=kept, flush=True)
"""
    shell = ["sh", "-c", 'exec "$0" "$@" 2>&-'] if how == "begun without" else []
    command = [*shell, sys.executable, "-c", code]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=100, check=True)
    number, total = child.stdout.split()
    assert number == "2"
    assert float(total) == pytest.approx(2048 * np.tanh(1), rel=1e-5)
    assert (tmp_path / "file").read_bytes() == b""


def test_a_pool_of_several_threads_follows_the_level_of_the_interface_before_that_of_the_environment(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    create(settings["home"], graph(convolved=False), threads=2)
    monkeypatch.setenv("POOLRT_VERBOSE", "profile")
    try:
        poolrt.set_verbose("profile_exec")
        lines = lines_of(graph(convolved=False), 20, threads=2, **settings)
        assert [(line.operation, line.fields[1]) for line in lines] == [("exec", "eltwise")] * 20
        assert all(line.milliseconds > 0 for line in lines)
    finally:
        poolrt.set_verbose(0)
