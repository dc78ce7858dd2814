"""The thread beside the loop: a failure there fails one load, and says whose fault it is."""

from __future__ import annotations

import selectors
from contextlib import closing
from typing import Any

import pytest

from poolrt import Graph
from poolrt.coordinator.background import BackgroundThread
from poolrt.coordinator.instructions import Lower, LoweredGraph, PendingGraph
from poolrt.errors import GraphRefused, PoolError
from poolrt.graph import layouts
from poolrt.graph.packed import pack_graph

_BOUND_S = 60.0


def outcome_of(thread: BackgroundThread, task: Lower) -> Any:
    """Return the name of a task's outcome and the second of its arguments."""
    thread.submit(task)
    with selectors.DefaultSelector() as selector:
        selector.register(thread, selectors.EVENT_READ)
        assert selector.select(_BOUND_S)
    ((name, (load, found)),) = thread.take()
    assert load == task.load
    return name, found


def lowering(load: int, wire: dict[str, Any]) -> Lower:
    return Lower(load, "small", PendingGraph(pack_graph(wire)), {})


def wire_of(algorithm: str) -> dict[str, Any]:
    g = Graph("small")
    g.output("y", g.eltwise(g.input("x", (2, 3)), algorithm))
    return g.to_wire()[0]


def test_a_bug_in_lowering_is_an_internal_error_and_a_malformed_graph_is_refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def lookup(*_: object) -> Any:
        raise KeyError("planted")

    with closing(BackgroundThread({}, None, 1)) as thread:
        # Given a bug in one step of lowering, when a sound graph is lowered
        with monkeypatch.context() as patch:
            patch.setitem(layouts._POLICIES, "eltwise", lookup)
            name, error = outcome_of(thread, lowering(1, wire_of("relu")))
        # Then it is our fault, not the graph's
        assert (name, type(error)) == ("on_load_failed", PoolError)
        assert "internal error: KeyError: 'planted'" in str(error)
        assert "in lookup\n" in capfd.readouterr().err
        # When a malformed graph is lowered, then it is the graph's
        wire = wire_of("relu")
        del wire["nodes"][0][4]["algorithm"]
        name, error = outcome_of(thread, lowering(2, wire))
        assert (name, type(error)) == ("on_load_failed", GraphRefused)
        assert "malformed graph: node 'eltwise_0' (eltwise): attributes: algorithm is missing" in str(error)
        # And neither ends the thread
        name, graph = outcome_of(thread, lowering(3, wire_of("relu")))
        assert (name, type(graph)) == ("on_lowered", LoweredGraph)
