"""Models whose runs use prepared places of rings, for tests, and what these rings have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.runs.client_ring import ClientRing
from poolrt.runs.prepared_places import PreparedPlaces
from poolrt.workers.ipc.ring import SubmittingRing

from .processes import relu_graph, wait_until

#: An input of the model that `load` loads by default.
X = np.arange(-16, 16, dtype=np.float32).reshape(4, 8)


def rings_of(pool: poolrt.Pool) -> list[ClientRing]:
    return [*pool._session.link.client.rings._rings.values()]


def note_probes(monkeypatch: pytest.MonkeyPatch) -> list[SubmittingRing]:
    """Return a list that gets the ring of each entry without a run: clients that wait long see by them that a worker gets on."""
    probes: list[SubmittingRing] = []
    append = SubmittingRing.append

    def noted(ring: SubmittingRing, model: int, inputs: Sequence[int], outputs: Sequence[int]) -> int:
        if not model:
            probes.append(ring)
        return append(ring, model, inputs, outputs)

    monkeypatch.setattr(SubmittingRing, "append", noted)
    return probes


def count_runs(ring: ClientRing, probes: list[SubmittingRing]) -> int:
    """Return how many runs have been submitted on a ring, without its probes."""
    return ring._ring.submitted - probes.count(ring._ring)


def places_of(model: poolrt.Model) -> list[PreparedPlaces]:
    """Return the prepared places of a model."""
    prepared = model._loaded.prepared
    return [] if prepared is None else [*prepared._places.values()]


def crashing_graph() -> poolrt.Graph:
    """Return a graph of the kernel `crashes`."""
    graph = poolrt.Graph("fragile")
    kernel = poolrt.NativeKernel.compile(crashes, "void(f4[::1], f4[::1])")
    graph.output("y", graph.call(kernel, [graph.input("x", (1,))], [((1,), "float32")], name="mine"))
    return graph


def crashes(x: Any, y: Any) -> None:
    """Write far beyond the output if the input is negative."""
    y[0] = x[0]
    if x[0] < 0:
        y[1 << 44] = 1
    if x[0] > 1:
        raise ValueError("large")


def load(pool: poolrt.Pool, graph: poolrt.Graph | None = None, workers: int = 2, **inputs: Any) -> poolrt.Model:
    """Return a model whose runs are prepared on all workers."""
    model = pool.load(relu_graph() if graph is None else graph, progress=False)
    inputs = inputs or {"x": X}

    wait_until(lambda: runs_on_rings(pool, model, workers, **inputs) and len(places_of(model)) > 0, "runs are prepared")
    return model


def runs_on_rings(pool: poolrt.Pool, model: poolrt.Model, workers: int = 2, **inputs: Any) -> bool:
    """Run once; return whether all workers take runs of the model from rings."""
    model.run(**inputs)
    ready = [ring.is_compiled and model._loaded.number in ring.models for ring in rings_of(pool)]
    return ready == [True] * workers
