"""`poolrt serve`, `status` and `stop` as programs: start, use, and every way to end a server."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import poolrt
from tests.poolrt.pool.created import create

#: Seconds that anything here may take before it counts as a hang.
BOUND_S = 60.0
#: A variable by which everything that a server starts is found again.
MARK = "TEST_OF_POOLRT_SERVE"
#: Runs a command with another bound for a server's answer.
_STATUS = "import sys; from poolrt.cli import main, served_state; served_state._ANSWER_S = {}; sys.exit(main())"


class Place:
    """A folder with home, runtime folder and sockets of servers, and no Redis."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "s"
        self.runtime = folder / "run"
        self.runtime.mkdir(mode=0o700)
        self._servers: list[subprocess.Popen[str]] = []

    def environment(self, **more: str | None) -> dict[str, str]:
        """Return the variables of a program; one that is None is not set."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
        own = {
            "POOLRT_HOME": str(self.folder / "home"),
            "POOLRT_REDIS_URL": f"unix://{self.folder}/none.sock",
            "POOLRT_ARENA_BYTES": "64MiB",
            "POOLRT_WORKERS": "1",
            "POOLRT_THREADS": "1",
            "XDG_RUNTIME_DIR": str(self.runtime),
            MARK: str(self.folder),
        }
        return {name: value for name, value in (env | own | more).items() if value is not None}

    def start(self, *words: str, **more: str | None) -> subprocess.Popen[str]:
        """Start a server without waiting for it."""
        command = [sys.executable, "-m", "poolrt", "serve", *words]
        pipe = subprocess.PIPE
        server = subprocess.Popen(
            command, cwd=self.folder, env=self.environment(**more), stdout=pipe, stderr=pipe, text=True
        )
        self._servers.append(server)
        return server

    def serve(self, *words: str, **more: str | None) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        """Start a server and return it with the object that it prints once it listens."""
        server = self.start(*words, "--json", **more)
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line, server.communicate(timeout=BOUND_S)
        return server, json.loads(line)

    def call(self, *words: str, code: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *(("-c", code) if code else ("-m", "poolrt")), *words]
        env = self.environment(**more)
        return subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=BOUND_S, check=False
        )

    def status_within(self, bound_s: str) -> subprocess.CompletedProcess[str]:
        """Show the status; the server has so many seconds for its answer, or as many as usual."""
        return self.call("status", "--socket", str(self.socket), code=_STATUS.format(bound_s) if bound_s else "")

    def processes(self) -> list[int]:
        """Return the living processes that were started here."""
        mark = f"{MARK}={self.folder}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def close(self) -> None:
        for server in self._servers:
            server.kill()
            server.communicate()
        _wait_until(lambda: not self.processes(), "all processes are gone")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place; the end of the test ends its processes."""
    place = Place(tmp_path)
    yield place
    place.close()


def _wait_until(condition: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def _model(path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3)) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def _said(place: Place, workers: int) -> str:
    return (
        f"listening at {place.socket}: {workers} worker{'s' * (workers > 1)} of 1 thread, 64.0 MiB of shared memory at most; "
        "to stop: poolrt stop, or Ctrl-C\n"
    )


def test_a_server_serves_programs_reports_its_state_and_stops(place: Place) -> None:
    # Given a server
    graph = poolrt.Graph("double")
    x = graph.input("x", (2, 3), "float32")
    graph.output("y", graph.binary(x, x, "add"))
    create(place.folder / "home", graph)
    server, said = place.serve("--socket", str(place.socket), "--workers", "2", "--threads", "1")
    assert said == {
        "socket": str(place.socket), "pid": server.pid, "workers": 2, "threads": 1, "arena_bytes": 64 << 20,
    }  # fmt: skip
    assert stat.S_IMODE(place.socket.stat().st_mode) == 0o600
    # Then a program can run graphs on it
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    with poolrt.connect(place.socket) as pool:
        np.testing.assert_array_equal(pool.load(graph).run(x=value)["y"], 2 * value)
        # And status tells of it
        status = json.loads(place.call("status", "--socket", str(place.socket), "--json").stdout)
        assert (status["pid"], status["socket"]) == (server.pid, str(place.socket))
        assert status["clients"] == 1
        assert len(status["workers"]) == 2
        assert sum(worker["runs"] for worker in status["workers"]) == 1
        assert status["arena"]["used"] > 0
        # The worker that has run nothing may still be starting
        _wait_until(lambda: [w["state"] for w in pool.stats()["workers"]] == ["idle"] * 2, "both are idle", BOUND_S)
    shown = place.call("status", "--socket", str(place.socket))
    assert shown.returncode == 0
    assert f"process {server.pid} at {place.socket}" in shown.stdout
    assert shown.stdout.count("idle") == 2
    # And stop ends it with all that it started
    stopped = place.call("stop", "--socket", str(place.socket), "--json")
    assert json.loads(stopped.stdout) == {"stopped": True, "socket": str(place.socket)}
    assert not place.socket.exists()
    assert place.processes() in ([], [server.pid])  # a zombie, which this process has not reaped yet
    assert server.communicate(timeout=BOUND_S) == ("", _said(place, 2))
    assert server.returncode == 0


def test_a_model_runs_on_a_server_and_a_second_load_creates_nothing(place: Place) -> None:
    _model(place.folder / "m.onnx")
    words = ("run", "m.onnx", "--random-inputs", "0", "--json", "--socket", str(place.socket))
    missing = place.call(*words)
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert f"no coordinator listens at {place.socket}" in missing.stderr
    server, _ = place.serve("--socket", str(place.socket))
    first, second = (json.loads(place.call(*words).stdout) for _ in range(2))
    assert first["primitives"]["created"] == first["primitives"]["total"] == 1
    assert second["primitives"]["memory"] == 1
    assert first["workers"][0]["pid"] == second["workers"][0]["pid"]
    assert first["workers"][0]["pid"] in place.processes()  # the server's: those of both runs have ended
    refused = place.call(*words, "--workers", "3")
    assert refused.returncode == 2
    assert "give their options to poolrt serve" in refused.stderr
    # POOLRT_SOCKET means the same; an empty option means none.
    variable = {"POOLRT_SOCKET": str(place.socket)}
    third = json.loads(place.call(*words[:-2], **variable).stdout)
    assert third["workers"][0]["pid"] == first["workers"][0]["pid"]
    refused = place.call(*words[:-2], "--workers", "3", **variable)
    assert refused.returncode == 2
    assert refused.stderr.startswith(
        f"poolrt: POOLRT_SOCKET (the setting socket): the server at {place.socket} decides workers"
    )
    own = place.call(*words[:-2], "--socket", "", **variable)
    assert "none.sock" in own.stderr  # a pool of the command needs the Redis that is named, and there is none
    assert json.loads(place.call("status", "--json", **variable).stdout)["pid"] == server.pid
    assert place.call("stop", **variable).returncode == 0
    missing = place.call(*words[:-2], **variable)
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert missing.stderr.startswith(
        f"poolrt: POOLRT_SOCKET (the setting socket): no coordinator listens at {place.socket}"
    )
    assert f"start one with poolrt serve --socket {place.socket}" in missing.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.one_in(2)
def test_a_signal_stops_a_server_cleanly(place: Place, number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # nohup ignores a hang-up, and children inherit that
    try:
        server, _ = place.serve("--socket", str(place.socket))
    finally:
        signal.signal(number, before)
    with poolrt.connect(place.socket) as pool:
        busy = pool.submit(time.sleep, 60)
        server.send_signal(number)
        assert server.wait(BOUND_S) == 0
        assert place.processes() == []
        assert not place.socket.exists()
        with pytest.raises(poolrt.errors.CoordinatorLost):
            busy.result(BOUND_S)
    assert server.communicate() == ("", _said(place, 1))


def test_a_signal_to_the_whole_process_group_stops_a_server_cleanly(place: Place) -> None:
    command = [sys.executable, "-m", "poolrt", "serve", "--socket", str(place.socket), "--json"]
    server = subprocess.Popen(
        command, env=place.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0, text=True
    )
    assert server.stdout is not None
    assert server.stdout.readline()
    os.killpg(server.pid, signal.SIGINT)
    _, errors = server.communicate(timeout=BOUND_S)
    assert server.returncode == 0
    assert "Traceback" not in errors
    assert place.processes() == []
    assert not place.socket.exists()


@pytest.mark.parametrize(
    "delay", [0.0, 0.1, 0.2, *(pytest.param(delay, marks=pytest.mark.slow) for delay in (0.05, 0.15, 0.3))]
)
def test_a_signal_at_any_moment_of_the_start_leaves_nothing(place: Place, delay: float) -> None:
    server = place.start("--socket", str(place.socket))
    time.sleep(delay)  # not to wait for something: the moment itself is what is tried
    server.terminate()
    server.communicate(timeout=BOUND_S)
    assert server.returncode in (0, -signal.SIGTERM)
    assert not place.socket.exists()
    _wait_until(lambda: not place.processes(), "all processes are gone")


def test_a_server_under_nohup_ignores_the_hang_up_of_its_terminal(place: Place) -> None:
    command = ["nohup", sys.executable, "-m", "poolrt", "serve", "--socket", str(place.socket), "--json"]
    server = subprocess.Popen(command, env=place.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert server.stdout is not None
        assert server.stdout.readline()
        server.send_signal(signal.SIGHUP)
        assert place.call("status", "--socket", str(place.socket)).returncode == 0
        assert place.call("stop", "--socket", str(place.socket)).returncode == 0
        assert server.wait(BOUND_S) == 0
    finally:
        server.kill()
        server.communicate()


def test_a_second_server_at_the_same_path_is_refused_in_one_line(place: Place) -> None:
    server, _ = place.serve("--socket", str(place.socket))
    second = place.call("serve", "--socket", str(place.socket))
    assert second.returncode == 1
    assert second.stdout == ""
    assert second.stderr == (
        f"poolrt: a server already listens at {place.socket}: see it with poolrt status, end it with poolrt stop\n"
    )
    assert place.call("status", "--socket", str(place.socket)).returncode == 0
    assert server.poll() is None


def test_a_file_at_the_path_is_refused_and_left_alone(place: Place) -> None:
    path = place.folder / "model.onnx"
    path.write_text("precious")
    refused = place.call("serve", "--socket", str(path))
    assert refused.returncode == 1
    assert refused.stderr == (f"poolrt: {path} exists and is not the socket of a server: choose another --socket\n")
    assert path.read_text() == "precious"
    assert place.processes() == []


@pytest.mark.parametrize("where", ["none/s", "x" * 200])
def test_a_path_that_cannot_be_used_is_refused_in_one_line(place: Place, where: str) -> None:
    refused = place.call("serve", "--socket", str(place.folder / where))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"poolrt: cannot listen at {place.folder / where}: ")
    assert refused.stderr.count("\n") == 1
    assert place.processes() == []


@pytest.mark.parametrize("command", ["status", "top", "stop"])
@pytest.mark.one_in(2)
def test_without_a_server_one_line_says_how_to_start_it(place: Place, command: str) -> None:
    line = f"no server listens at {place.socket}: start one with poolrt serve --socket {place.socket}"
    plain = place.call(command, "--socket", str(place.socket))
    assert (plain.returncode, plain.stdout, plain.stderr) == (1, "", f"poolrt: {line}\n")
    answer = place.call(command, "--socket", str(place.socket), "--json")
    assert answer.returncode == 1
    assert json.loads(answer.stdout) == {"error": {"type": "JobFailed", "message": line}}


def test_the_processes_of_a_killed_server_end_and_a_new_server_can_listen(place: Place) -> None:
    killed, _ = place.serve("--socket", str(place.socket))
    killed.kill()
    killed.wait()
    _wait_until(lambda: not place.processes(), "all processes are gone")
    assert place.socket.exists()
    assert place.call("status", "--socket", str(place.socket)).returncode == 1
    server, said = place.serve("--socket", str(place.socket))
    assert said["pid"] == server.pid
    assert place.call("stop", "--socket", str(place.socket)).returncode == 0


@pytest.mark.parametrize("bound_s", ["1", pytest.param("", marks=pytest.mark.slow)], ids=["shorter", "usual"])
def test_a_server_that_does_not_answer_is_an_error_within_a_bound(place: Place, bound_s: str) -> None:
    server, _ = place.serve("--socket", str(place.socket))
    os.kill(server.pid, signal.SIGSTOP)
    try:
        done = place.status_within(bound_s)
        assert done.returncode == 1
        assert done.stderr.startswith(f"poolrt: the server at {place.socket} does not answer")
        assert done.stderr.count("\n") == 1
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("served", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_default_socket_is_in_the_users_runtime_folder_else_in_the_home_folder(place: Place, served: int) -> None:
    """Starts servers at so many of the paths; of the others a command says that none listens there."""
    paths: tuple[tuple[dict[str, str], Path], ...] = (
        ({}, place.runtime / "poolrt.sock"),
        ({"XDG_RUNTIME_DIR": "/nowhere"}, place.folder / "home" / "poolrt.sock"),
        ({"XDG_RUNTIME_DIR": ""}, place.folder / "home" / "poolrt.sock"),
        ({"POOLRT_SOCKET": "mine"}, place.folder / "mine"),
    )
    for more, expected in paths[:served]:
        server, said = place.serve(**more)
        assert said["socket"] == str(expected)
        assert not expected.parent.stat().st_mode & 0o077 or expected.parent == place.folder
        # A busy machine may need more than the usual time for an answer.
        assert place.call("status", code=_STATUS.format(BOUND_S), **more).returncode == 0
        assert place.call("stop", **more).returncode == 0
        assert server.wait(BOUND_S) == 0
        assert not expected.exists()
    for more, expected in paths[served:]:
        assert f"no server listens at {expected}: " in place.call("status", **more).stderr


def test_the_command_line_overrides_the_workers_of_a_settings_file(place: Place) -> None:
    config = place.folder / "c.toml"
    config.write_text("[pool]\nworkers = 3\nthreads = 2\narena_bytes = '8 MiB'\n")
    environ = dict.fromkeys(("POOLRT_WORKERS", "POOLRT_THREADS", "POOLRT_ARENA_BYTES"))
    _, said = place.serve("--socket", str(place.socket), "--config", str(config), "--threads", "1", **environ)
    assert (said["workers"], said["threads"], said["arena_bytes"]) == (3, 1, 8 << 20)
    wrong = place.call("serve", "--workers", "none")
    assert wrong.returncode == 2
    assert (
        wrong.stderr
        == "poolrt: argument --workers: expected an integer of at least 1, got none (see poolrt serve --help)\n"
    )
