"""`poolrt top` beside a server that computes, on a terminal and off it, and until the server ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import poolrt
from poolrt.cli.worker_rates import WorkerRates
from tests.poolrt.pool.processes import relu_graph

from .test_serve import BOUND_S, Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


@contextmanager
def _client(socket: Path) -> Iterator[None]:
    """Run a model on a server beside the block."""
    stop = threading.Event()
    with poolrt.connect(socket) as pool:
        model = pool.load(relu_graph())

        def run() -> None:
            while not stop.is_set():
                model.run(x=np.ones((4, 8), np.float32))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(BOUND_S)


def test_views_have_rates_from_the_second_on(place: Place) -> None:
    place.serve("--socket", str(place.socket))
    with _client(place.socket):
        done = place.call("top", "--socket", str(place.socket), "--interval", "0.5", "--count", "3", "--json")
        plain = place.call("top", "--socket", str(place.socket), "--interval", "0.1", "--count", "2")
    assert (done.returncode, done.stderr) == (0, "")
    views = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(views) == 3
    assert [view["clients"] for view in views] == [1, 1, 1]
    (first,), *later = [view["workers"] for view in views]
    assert first["runs_per_s"] is None
    assert first["cores"] is None
    status = json.loads(place.call("status", "--socket", str(place.socket), "--json").stdout)
    assert {*views[0]} == {*status}
    assert {*first} == {*status["workers"][0], "runs_per_s", "cores"}
    for (worker,) in later:
        assert worker["pid"] == first["pid"]
        assert worker["runs_per_s"] > 0
        assert 0 <= worker["cores"] < 2
    assert plain.returncode == 0
    views_as_text = plain.stdout.split("\n\nserver ")
    assert len(views_as_text) == 2
    assert "runs/s" in views_as_text[1]
    assert " %  " in views_as_text[1]
    assert " %  " not in views_as_text[0]


def test_on_a_terminal_each_view_replaces_the_one_before(place: Place) -> None:
    place.serve("--socket", str(place.socket))
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "poolrt",
        "top",
        "--socket",
        str(place.socket),
        "--interval",
        "0.1",
        "--count",
        "3",
    ]
    env = place.environment(TERM="xterm", COLUMNS="100", LINES="40")
    with subprocess.Popen(command, env=env, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True) as top:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 1 << 16)
            except OSError:
                break
        os.close(ours)
        assert top.wait(BOUND_S) == 0
    assert shown.count(b"process ") >= 3
    assert b"\x1b[1A" in shown  # the cursor goes up, to where the view before began


def test_it_ends_when_the_server_does(place: Place) -> None:
    server, _ = place.serve("--socket", str(place.socket))
    command = [sys.executable, "-m", "poolrt", "top", "--socket", str(place.socket), "--interval", "0.1", "--json"]
    env = place.environment()
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as top:
        assert top.stdout is not None
        assert json.loads(top.stdout.readline())["pid"] == server.pid
        server.send_signal(signal.SIGTERM)
        server.wait(BOUND_S)
        out, err = top.communicate(timeout=BOUND_S)
    assert top.returncode == 1
    assert err.count("\n") == 1
    assert f"the server at {place.socket} does not answer" in err
    assert json.loads(out.splitlines()[-1])["error"]["type"] == "JobFailed"


@pytest.mark.parametrize("words", [["--interval", "0.01"], ["--interval", "nan"], ["--count", "0"]])
def test_a_wrong_number_is_refused_before_anything_is_asked(place: Place, words: list[str]) -> None:
    refused = place.call("top", "--socket", str(place.socket), *words)
    assert refused.returncode == 2
    assert words[1] in refused.stderr


def test_rates_are_those_between_two_states() -> None:
    mine = os.getpid()
    rates = WorkerRates()
    start = time.monotonic()
    (first,) = rates.add([{"pid": mine, "runs": 5}], start)
    assert (first["runs_per_s"], first["cores"]) == (None, None)
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    passed = time.monotonic() - start
    second, new = rates.add([{"pid": mine, "runs": 25}, {"pid": 0, "runs": 0}], start + passed)
    assert second["runs_per_s"] == pytest.approx(20 / passed)
    assert second["cores"] == pytest.approx(0.3 / passed, rel=0.3)
    assert (new["runs_per_s"], new["cores"]) == (None, None)
    # A worker whose counts fell is another one
    (third,) = rates.add([{"pid": mine, "runs": 1}], start + passed + 1)
    assert third["runs_per_s"] is None
