"""The thread beside the loop: a failure there fails one load, and says whose fault it is."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from poolrt import Graph
from poolrt.cachestore import CacheStore, Key
from poolrt.coordinator import source_stamp
from poolrt.coordinator.background import PRELOAD, BackgroundThread
from poolrt.coordinator.instructions import CollectStatistics, LookUp, Lower, LoweredGraph, PendingGraph
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


def outcomes_of(thread: BackgroundThread, count: int) -> list[Any]:
    """Wait for so many outcomes; return the names and arguments of each."""
    found: list[Any] = []
    with selectors.DefaultSelector() as selector:
        selector.register(thread, selectors.EVENT_READ)
        while len(found) < count:
            assert selector.select(_BOUND_S)
            found += thread.take()
    return found


def lowering(load: int, wire: dict[str, Any]) -> Lower:
    return Lower(load, 1, "small", PendingGraph(pack_graph(wire)), {})


def wire_of(algorithm: str) -> dict[str, Any]:
    g = Graph("small")
    g.output("y", g.eltwise(g.input("x", (2, 3)), algorithm))
    return g.to_wire()[0]


def test_a_bug_in_lowering_is_an_internal_error_and_a_malformed_graph_is_refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def lookup(*_: object) -> Any:
        raise KeyError("planted")

    with closing(BackgroundThread({"home": str(tmp_path)}, "", 1)) as thread:
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


def test_a_graph_that_was_lowered_is_not_lowered_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with closing(BackgroundThread({"home": str(tmp_path)}, "", 1)) as thread:
        _, first = outcome_of(thread, lowering(1, wire_of("relu")))
        # Given a bug that fails every lowering, when the same graph is loaded again, then it is there
        with monkeypatch.context() as patch:
            patch.setitem(layouts._POLICIES, "eltwise", None)
            assert outcome_of(thread, lowering(2, wire_of("relu"))) == ("on_lowered", first)
            # And another graph, or the same for another engine's target, is lowered anew
            assert outcome_of(thread, lowering(3, wire_of("tanh")))[0] == "on_load_failed"
            other = lowering(4, wire_of("relu"))._replace(targets={"cpu2": []})
            assert outcome_of(thread, other)[0] == "on_load_failed"


def test_a_graph_that_another_coordinator_has_lowered_is_not_lowered_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(source_stamp, "_BEGUN", time.time() + 10)  # sources count as unchanged since the start
    with closing(BackgroundThread({"home": str(tmp_path)}, "", 1)) as thread:
        _, first = outcome_of(thread, lowering(1, wire_of("relu")))
    # Given a bug that fails every lowering, when another thread gets the same graph, then the node has it
    monkeypatch.setitem(layouts._POLICIES, "eltwise", None)
    with closing(BackgroundThread({"home": str(tmp_path)}, "", 1)) as thread:
        assert outcome_of(thread, lowering(1, wire_of("relu"))) == ("on_lowered", first)
        # And another graph is lowered, as is this one for another number of threads
        assert outcome_of(thread, lowering(2, wire_of("tanh")))[0] == "on_load_failed"
    with closing(BackgroundThread({"home": str(tmp_path)}, "", 2)) as thread:
        assert outcome_of(thread, lowering(1, wire_of("relu")))[0] == "on_load_failed"


_EARLY_LOAD = """
import os, selectors, sys, threading

from poolrt import Graph
from poolrt.cachestore import CacheStore, Key
from poolrt.coordinator.background import BackgroundThread
from poolrt.coordinator.instructions import Lower, PendingGraph
from poolrt.graph.packed import pack_graph

class Gate:
    def find_spec(self, name, path=None, target=None):
        assert name != "poolrt.graph.lower" or opened.wait(60)

with CacheStore.connect(home=os.getcwd()) as store:
    store.results.put(Key({"name": "any"}), b"any")  # not a new node, which prepares at once
opened = threading.Event()
sys.meta_path.insert(0, Gate())
g = Graph("small")
g.output("y", g.eltwise(g.input("x", (2, 3)), "relu"))
thread = BackgroundThread({"home": os.getcwd()}, "", 1)
thread.submit(Lower(1, 1, "small", PendingGraph(pack_graph(g.to_wire()[0])), {}))
opened.set()
with selectors.DefaultSelector() as selector:
    selector.register(thread, selectors.EVENT_READ)
    assert selector.select(60)
print(thread.take()[0][0], *(name.rpartition(".")[2] for name in sys.modules if "implementations.native." in name))
"""


def test_a_first_load_waits_for_no_implementation_of_other_operations(tmp_path: Path) -> None:
    # Given a graph that comes before the thread has prepared for lowering, when it is lowered
    run = [sys.executable, "-c", _EARLY_LOAD]
    result = subprocess.run(run, capture_output=True, text=True, timeout=_BOUND_S, cwd=tmp_path, check=True)
    # Then the thread has imported what that takes
    outcome, *imported = result.stdout.split()
    assert outcome == "on_lowered"
    assert "eltwise" in imported
    assert not {"convolution", "pooling", "softmax"} & {*imported}


def test_a_client_whose_graphs_are_refused_delays_only_its_own_next_graphs(tmp_path: Path) -> None:
    malformed = wire_of("relu")
    malformed["nodes"] = [malformed["nodes"][0][:2]] * 5000
    careless, careful = (1, 0), (2, 0)
    with closing(BackgroundThread({"home": str(tmp_path)}, "", 1, "0", lambda owner: True)) as thread:
        # Given a client that has sent three malformed graphs, when another one loads a sound graph
        for load in (1, 2, 3):
            thread.submit(lowering(load, malformed), careless)
        thread.submit(lowering(4, wire_of("relu")), careful)
        names = [(name, found[0]) for name, found in outcomes_of(thread, 3)]
        # Then that one comes second, and the next malformed graph after a while
        assert names == [("on_load_failed", 1), ("on_lowered", 4), ("on_load_failed", 2)]


def test_the_compiler_is_wanted_before_an_empty_node_starts_its_server_and_at_no_other_time(tmp_path: Path) -> None:
    def found(name: str, url: str = "") -> list[str]:
        store = {"home": str(tmp_path / name), **({"url": url} if url else {})}
        with closing(BackgroundThread(store, "", 1)) as thread:
            _, graph = outcome_of(thread, lowering(1, wire_of("relu")))
            thread.submit(LookUp(1, [*range(len(graph.primitives))]))
            names: list[str] = []
            while "on_looked_up" not in names:
                names += [name for name, _ in outcomes_of(thread, 1)]
            return names

    with CacheStore.connect(home=str(tmp_path / "empty")) as store:
        try:
            assert found("empty") == [PRELOAD, "on_looked_up"]
            # Given a node that has something: a kernel may be there in another primitive
            store.get_or_create(Key({"name": "any"}), lambda: b"entry")
            assert found("empty") == ["on_looked_up"]
        finally:
            store.down()
    # Given a server that others may share, it is asked first
    assert found("another", f"unix://{tmp_path}/no.sock") == ["on_looked_up"]


def test_requests_for_statistics_that_wait_have_one_look_at_the_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks: list[int] = []
    stats = CacheStore.stats

    def counted(store: CacheStore) -> Any:
        looks.append(1)
        return stats(store)

    monkeypatch.setattr(CacheStore, "stats", counted)
    with closing(BackgroundThread({"url": f"unix://{tmp_path}/no.sock", "home": str(tmp_path)}, "", 1)) as thread:
        with thread._changed:  # the thread takes no task meanwhile
            for request in range(5):
                workers = [{"pid": os.getpid()}, {"pid": 2**22 + 1}]
                thread.submit(CollectStatistics(7, request, {"workers": workers}))
        found = outcomes_of(thread, 5)
    assert [(name, peer, request) for name, (peer, request, _) in found] == [("on_statistics", 7, i) for i in range(5)]
    assert len(looks) == 1
    for _, (_, _, statistics) in found:
        assert statistics["cache"] == found[0][1][2]["cache"]
        assert statistics["workers"][0]["rss_bytes"] > 0
        assert statistics["workers"][1]["rss_bytes"] == 0
