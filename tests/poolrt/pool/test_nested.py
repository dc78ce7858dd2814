"""Models whose primitives are made of others: created once, found again by new processes, whole after a creator's death."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from tests.poolrt.graph.interpreter import run_wire
from tests.startup.shared_compiler import FOLDER

from .processes import BOUND_S, below, workers_of

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 8, 6, 6)).astype(np.float32)
S = RNG.standard_normal((4, 3, 16)).astype(np.float32)


EVERY = ("convolution", "inner_product", "lstm")


def nested_graph(engine: str, operations: tuple[str, ...]) -> poolrt.Graph:
    """Return a graph of these operations, each made of other primitives, in their order in `EVERY`."""

    def drawn(*dims: int) -> Any:
        return np.random.default_rng(len(dims)).uniform(-0.3, 0.3, dims).astype(np.float32)

    g = poolrt.Graph("nested", engine, implementation="nested:matmul")
    if "convolution" in operations or "inner_product" in operations:
        h = g.input("x", X.shape)
        if "convolution" in operations:
            h = g.convolution(h, drawn(12, 4, 3, 3), drawn(12), padding=1, groups=2)
        if "inner_product" in operations:
            h = g.reshape(h, (3, -1))
            h = g.inner_product(h, drawn(20, h.shape[1]), drawn(20))
        g.output("y", h)
    if "lstm" in operations:
        s, last, _ = g.lstm(g.input("s", S.shape), drawn(1, 2, 16, 4, 16), drawn(1, 2, 16, 4, 16), drawn(1, 2, 4, 16),
                            direction="bidirectional_concat")  # fmt: skip
        g.output("s", s)
        g.output("last", last)
    return g


def assert_right(model: Any, graph: poolrt.Graph) -> None:
    inputs = {name: value for name, value in (("x", X), ("s", S)) if name in graph.inputs}
    wanted = run_wire(*graph.to_wire(), inputs)
    for future in [model.submit(**inputs) for _ in range(8)]:
        for name, found in future.result(BOUND_S).items():
            np.testing.assert_allclose(found, wanted[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("engine", "operations"),
    [
        ("cpu", ("inner_product", "lstm")),
        pytest.param("cpu", EVERY, marks=pytest.mark.slow),
        pytest.param("opencl", EVERY, marks=pytest.mark.slow),
    ],
)
def test_nested_primitives_are_created_once_and_survive_their_creators(
    engine: str,
    operations: tuple[str, ...],
    request: pytest.FixtureRequest,
    settings: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(FOLDER, raising=False)  # so that creators are at work when they are killed
    if engine == "opencl":
        request.getfixturevalue("device")
    graph, killed = nested_graph(engine, operations), list[int]()
    private = {**settings, "home": str(tmp_path), "lease_s": 0.5}

    def creators() -> list[int]:
        if engine == "cpu":
            return below(pool.stats()["pid"], 3)
        # Those of a device need no preloaded fork server: their parent is that of the workers.
        return [*{*below(pool.stats()["pid"], 2)} - {worker["pid"] for worker in pool.stats()["workers"]}]

    def kill(total: int, ready: int, names: list[str]) -> None:
        # The first time that one is at a product: two at most, since more that die in a row, before they are at work,
        # would be creators that cannot be started
        if not killed and any("matmul" in name for name in names):
            for pid in creators()[:2]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    # When creators die while they create nested primitives, then everything is there all the same
    with poolrt.Pool(workers=2, threads=1, **private) as pool:
        model = pool.load(graph, progress=kill)
        assert killed
        report = model.report["primitives"]
        # A creator may have died when its entry was just published
        assert report["created"] >= report["total"] - len(killed) > 0
        steps = [step for step in model.plan().steps if step.implementation == "nested:matmul"]
        assert [step.operation for step in steps] == list(operations)
        assert_right(model, graph)
        # When a worker dies, then another one realizes them
        os.kill(workers_of(pool)[0], signal.SIGKILL)
        assert_right(model, graph)
    # And new processes create nothing
    with poolrt.Pool(workers=1, threads=1, **private) as pool:
        model = pool.load(graph)
        found = model.report["primitives"]
        assert (found["created"], found["files"]) == (0, report["total"])
        assert_right(model, graph)
