"""A large graph is lowered in a process of its own, with the same result, and that process may end at any time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from poolrt.coordinator import lowering_process
from poolrt.coordinator.background import _LARGE_BYTES, BackgroundThread
from poolrt.coordinator.instructions import Lower, PendingGraph
from poolrt.coordinator.lowering import LoweringRequest, lower_here
from poolrt.coordinator.lowering_process import TRIES, lower_in_process
from poolrt.errors import GraphRefused, PoolError
from poolrt.workers.ipc.spawn import start_program
from tests.poolrt.pool.attacks import _chain, _constants
from tests.poolrt.pool.processes import children, command, wait_until

_BOUND_S = 60.0
_REQUEST = LoweringRequest("g", {}, "", 2, with_texts=True)


def processes() -> list[int]:
    """Return the processes of this one that lower a graph."""
    return [pid for pid in children(os.getpid()) if "lowering_process" in command(pid)]


def wait_for_process() -> int:
    until = time.monotonic() + _BOUND_S
    while not (found := processes()):
        assert time.monotonic() < until
        time.sleep(0.001)
    return found[0]


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert processes() == []


@pytest.mark.parametrize("graph", [_chain(50, "n"), _constants(20)])
def test_a_process_lowers_a_graph_as_this_one_does(graph: bytes) -> None:
    assert lower_in_process(_REQUEST, graph, lambda: False) == lower_here(_REQUEST, graph)


def test_a_graph_is_refused_with_the_same_words() -> None:
    words = []
    for lower in (lower_here, lambda request, data: lower_in_process(request, data, lambda: False)):
        with pytest.raises(GraphRefused) as refused:
            lower(_REQUEST, b"\x81\xa5nodes\x07")
        words.append(str(refused.value))
    assert words[0] == words[1]
    assert words[0].startswith("graph 'g': malformed graph")


def test_a_bug_in_a_process_is_an_internal_error() -> None:
    broken = LoweringRequest("g", {"opencl:0": ["no", "target"]}, "", 1, with_texts=False)
    with pytest.raises(PoolError, match="internal error: ValueError: "):
        lower_in_process(broken, _chain(1, "n"), lambda: False)


@pytest.mark.parametrize("kills", [TRIES - 1, TRIES])
@pytest.mark.one_in(2)
def test_a_process_that_is_killed_is_replaced_a_few_times(kills: int, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[object] = []
    started: list[int] = []

    def start(*words: Any) -> int:
        pid = start_program(*words)
        if len(started) < kills:
            os.kill(pid, signal.SIGSTOP)  # it does not end before it is killed
        started.append(pid)
        return pid

    monkeypatch.setattr(lowering_process, "start_program", start)

    def lower() -> None:
        try:
            outcomes.append(lower_in_process(_REQUEST, _chain(5000, "n"), lambda: False))
        except PoolError as error:
            outcomes.append(error)

    thread = threading.Thread(target=lower)
    thread.start()
    for number in range(kills):
        wait_until(lambda number=number: len(started) > number, "a process is started", _BOUND_S)  # type: ignore[misc]
        os.kill(started[number], signal.SIGSEGV)
        os.kill(started[number], signal.SIGCONT)
    thread.join(_BOUND_S)
    (outcome,) = outcomes
    assert len(started) == min(kills + 1, TRIES)
    if kills < TRIES:
        assert outcome == lower_here(_REQUEST, _chain(5000, "n"))
    else:
        assert f"graph 'g': {TRIES} processes that lowered it were ended, the last one by SIGSEGV" in str(outcome)


def test_a_background_thread_that_is_stopped_ends_its_process_at_once(tmp_path: Path) -> None:
    graph = _chain(20_000, "n")
    assert len(graph) > _LARGE_BYTES
    thread = BackgroundThread({"home": str(tmp_path)}, "", 1)
    thread.submit(Lower(1, 1, "g", PendingGraph(graph), {}))
    wait_for_process()
    begin = time.monotonic()
    thread.close()
    assert time.monotonic() - begin < _BOUND_S / 2
    assert not thread._thread.is_alive()


def test_a_coordinator_without_a_process_for_it_lowers_a_large_graph_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: Any) -> Any:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr("poolrt.coordinator.lowering_process.start_program", refuse)
    graph = _chain(3000, "n" * 100)
    thread = BackgroundThread({"home": str(tmp_path)}, "", 1)
    try:
        thread.submit(Lower(1, 1, "g", PendingGraph(graph), {}))
        until = time.monotonic() + _BOUND_S
        while not (found := thread.take()):
            assert time.monotonic() < until
            time.sleep(0.01)
        assert found[0][0] == "on_lowered"
        assert found[0][1][1] == lower_here(LoweringRequest("g", {}, "", 1, with_texts=False), graph).graph
    finally:
        thread.close()
