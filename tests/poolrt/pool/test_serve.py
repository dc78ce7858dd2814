"""A coordinator with a listening socket: many clients, none of which can harm another."""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgpack
import numpy as np
import pytest

import poolrt
from poolrt.connection.server import connect_socket, stop_server
from poolrt.coordinator.loads import LOADS_LIMIT
from poolrt.coordinator.loop import CLIENTS_LIMIT
from poolrt.coordinator.state import CLIENT_LIMIT
from poolrt.errors import CoordinatorLost
from poolrt.workers.ipc.protocol import VERSION, Kind
from tests.other_user import needs_root, run_as_other

from .processes import BOUND_S, connects, cpu_seconds, descendants, is_alive, relu_graph, wait_until
from .servers import started

#: Seconds that clients of these tests have for their first message: less than by default, so that one test ends sooner.
HELLO_S: Final = 2.0

_SERVER = """
    import sys
    from poolrt.coordinator import loop
    from poolrt.coordinator.entry import serve_path
    from poolrt.settings import Settings
    loop.HELLO_S = float(sys.argv[4])
    sys.exit(serve_path(sys.argv[1], Settings.load(workers=2, threads=1, home=sys.argv[2], redis_url=sys.argv[3],
                                                   arena_bytes=64 << 20)))
"""


def _command(settings: dict[str, Any], path: Path) -> list[str]:
    """Return the command of a server that listens at a path."""
    words = [str(path), settings["home"], settings["redis_url"], str(HELLO_S)]
    return [sys.executable, "-c", textwrap.dedent(_SERVER), *words]


@pytest.fixture(scope="module")
def server(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """A serving coordinator: its process id and path."""
    path = tmp_path_factory.mktemp("serve") / "poolrt.sock"
    command = _command(settings, path)
    process = subprocess.Popen(command)
    try:
        wait_until(lambda: connects(path) or process.poll() is not None, "the server listens")
        yield process.pid, path
        assert process.poll() is None, "it is still there"
        below = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_S) == 0
        assert not path.exists()
        wait_until(lambda: not any(is_alive(pid) for pid in below), "its processes are gone", seconds=1.0)
    finally:
        process.kill()
        process.wait()


def _raw(path: Path, *, hello: bool = True) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(str(path))
    sock.settimeout(BOUND_S)
    if hello:
        sock.send(b"\0" + msgpack.packb([Kind.HELLO, VERSION]))
        assert msgpack.unpackb(sock.recv(65536)[1:])[0] == Kind.WELCOME
    return sock


def _works(pool: poolrt.Pool) -> bool:
    return bool(pool.load(relu_graph()).run(x=np.ones((4, 8), np.float32))["y"].sum() == 32)


def test_only_this_user_can_connect(server: tuple[int, Path]) -> None:
    mode = server[1].stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_clients_share_workers_and_kernels_and_leave_without_a_trace(server: tuple[int, Path]) -> None:
    _, path = server
    with poolrt.connect(path) as first, poolrt.connect(str(path)) as second:
        assert _works(first)
        report = second.load(relu_graph(name="another")).report["primitives"]
        assert (report["created"], report["memory"]) == (0, 1)
        assert first.submit(pow, 2, 5).result(BOUND_S) == 32
        held = first.empty((1000, 1000))
        assert held.nbytes < second.stats()["arena"]["used"]
        wait_until(lambda: second.stats()["clients"] == 2, "these two are the only clients")
    with poolrt.connect(path) as third:
        wait_until(lambda: third.stats()["clients"] == 1, "the others have left")
        assert third.stats()["arena"]["used"] == 0
        assert _works(third)


def test_what_functions_print_reaches_the_client_that_called_them_and_no_other(server: tuple[int, Path]) -> None:
    program = """
import poolrt, sys
with poolrt.connect(sys.argv[1]) as pool:
    list(pool.map(exec, [f"import sys; print({sys.argv[2]!r}); print('why', file=sys.stderr)"] * 20))
"""
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(server[1]), name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("first", "second")
    ]
    assert [client.communicate(timeout=BOUND_S) for client in clients] == [
        ("first\n" * 20, "why\n" * 20),
        ("second\n" * 20, "why\n" * 20),
    ]


def test_a_killed_clients_memory_is_given_back_and_its_work_ends_unheard(server: tuple[int, Path]) -> None:
    _, path = server
    script = """
        import sys, time, poolrt
        pool = poolrt.connect(sys.argv[1])
        arrays = [pool.empty((1000, 1000)) for _ in range(5)]
        for _ in range(4):
            pool.submit(time.sleep, 0.3)
        print("ready", flush=True)
        time.sleep(60)
    """
    client = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(path)], stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    with poolrt.connect(path) as pool:
        assert pool.stats()["arena"]["used"] > 5 * 4_000_000
        client.kill()
        client.communicate()
        wait_until(lambda: pool.stats()["arena"]["used"] == 0, "its memory is free", seconds=1.0)
        assert _works(pool)


@pytest.mark.parametrize(
    "frames",
    [
        [b"garbage"],
        [b"\0" + msgpack.packb([999, 1])],
        [b"\0" + msgpack.packb([Kind.RUN, 1, 77, [], []])],
        [b"\0" + msgpack.packb([Kind.RUN, 1, 2, "no list", []])],
        [b"\0" + msgpack.packb([Kind.RELEASE, [0]])],
        [b"\0" + msgpack.packb([Kind.WRITTEN, 1, [5]]), b"\0" + msgpack.packb([Kind.DONE, 1, []])],
        [b"\0" + msgpack.packb([Kind.HELLO, VERSION])],
        [b"\0" + msgpack.packb([Kind.CONFIGURE, {}])],
        [b"\1" + b"x" * 65536] * 8 + [b"\0"],
    ],
)
def test_a_client_that_breaks_the_rules_loses_its_connection_and_no_other_does(
    server: tuple[int, Path], frames: list[bytes]
) -> None:
    _, path = server
    with poolrt.connect(path) as pool:
        rude = _raw(path)
        try:
            for frame in frames:
                rude.send(frame)
            assert rude.recv(65536) == b""
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was thrown out before it had finished
        rude.close()
        assert _works(pool)


#: Post-ops, quantisation, engine and implementation of a node that has none of its own.
NOTHING_MORE: Final[tuple[Any, ...]] = ([], [], "", "")


def _relu_wire(dims: list[int], **changes: Any) -> dict[str, Any]:
    node = ["eltwise", "n", [0], [1], {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}, *NOTHING_MORE]
    wire: dict[str, Any] = {"name": "g", "engine": "cpu", "fpmath_mode": "strict"}
    wire |= {"values": [[dims, "f32"]] * 2, "inputs": [["x", 0]], "outputs": [["y", 1]]}
    return {**wire, "constants": [], "nodes": [node], **changes}


def _load_fields(wire: dict[str, Any]) -> list[Any]:
    """Return the fields of a message that loads a graph: its name and engines beside it."""
    engine = wire.get("engine", "cpu")
    return [wire.get("name", "g")[:200], [engine] if isinstance(engine, str) else [""], 0, msgpack.packb(wire)]


@pytest.mark.parametrize(
    "graph",
    [
        {},
        {"name": "g", "engine": "cpu", "nodes": 5},
        {"engine": "abacus"},
        {"engine": ["cpu"]},
        {"engine": "opencl:" + "9" * 5000},
        {"values": [[[-1], "f32"]]},
        {"name": "n" * 60_000, "engine": "cpu"},
        _relu_wire([4], engine="opencl:97"),
        _relu_wire([4], nodes=[None] * 30_000),
        _relu_wire([2**31, 2**31, 4]),
        _relu_wire([2**63, 2**63]),
        _relu_wire([4], inputs=[], constants=[[0, 17]]),
        _relu_wire([4], inputs=[], constants=[[0, 2**63]]),
        _relu_wire([4], inputs=[], constants=[[0, -5]]),
        _relu_wire([4], inputs=[], constants=[[0, "a"]]),
        _relu_wire([1 << 20], inputs=[], constants=[[0, 4]]),
        _relu_wire(
            [4], nodes=[["reshape", "n", [0], [1], {}, *NOTHING_MORE]], values=[[[4], "f32"], [[1 << 20], "f32"]]
        ),
    ],
    ids=lambda graph: str(graph)[:40],
)
def test_a_graph_that_makes_no_sense_is_an_answer_and_nothing_else(
    server: tuple[int, Path], graph: dict[str, Any]
) -> None:
    _, path = server
    client = _raw(path)
    client.send(b"\0" + msgpack.packb([Kind.LOAD, 5, *_load_fields(graph)]))
    answer = msgpack.unpackb(client.recv(65536 + 2)[1:])
    assert answer[:2] == [Kind.FAILED, 5]
    assert len(str(answer)) < 30_000
    client.close()
    with poolrt.connect(path) as pool:
        assert pool.stats()["workers_lost"] == 0


def _say(client: socket.socket, *message: Any) -> None:
    client.send(b"\0" + msgpack.packb(message))


def _hear(client: socket.socket, *kinds: Kind) -> list[Any]:
    """Return the next message of one of these kinds."""
    while True:
        message: list[Any] = msgpack.unpackb(client.recv(65536 + 2)[1:])
        if message[0] in kinds:
            return message


def test_a_client_that_dies_in_the_middle_of_writing_constants_leaves_no_memory_and_no_load(
    server: tuple[int, Path],
) -> None:
    _, path = server
    rows = 300_000
    nodes = [
        ["binary", f"n{i}", [2 * i, 2 * i + 1], [2 * i + 2], {"algorithm": "add"}, *NOTHING_MORE] for i in range(8)
    ]
    constants = [[2 * i + 1, 4 * rows] for i in range(8)]
    values = [[[rows], "f32"]] * 17
    wire = _relu_wire([rows], values=values, nodes=nodes, constants=constants, outputs=[["y", 16]])
    with poolrt.connect(path) as pool:
        client = _raw(path)
        _say(client, Kind.LOAD, 1, *_load_fields(wire))
        stage = _hear(client, Kind.STAGE)
        assert pool.stats()["arena"]["used"] >= 8 * 4 * rows
        _say(client, Kind.WRITTEN, 1, [stage[2][0][0]])
        client.close()
        wait_until(lambda: pool.stats()["clients"] == 1, "it has left")
        wait_until(lambda: pool.stats()["arena"]["used"] == 0, "its memory is free", seconds=1.0)
        assert _works(pool)


def test_a_client_may_have_so_many_loads_under_way_and_the_others_are_not_held_up(server: tuple[int, Path]) -> None:
    _, path = server
    greedy = _raw(path)
    # Loads that wait for ever for their constant
    wire = _relu_wire([4], inputs=[], constants=[[0, 16]])
    for request in range(LOADS_LIMIT + 20):
        _say(greedy, Kind.LOAD, request, *_load_fields(wire))
    refused = {_hear(greedy, Kind.FAILED)[1] for _ in range(20)}
    assert refused == set(range(LOADS_LIMIT, LOADS_LIMIT + 20))
    with poolrt.connect(path) as pool:
        assert _works(pool)
    greedy.close()


def test_a_client_that_asks_on_and_on_and_reads_no_answer_is_not_read_either(server: tuple[int, Path]) -> None:
    pid, path = server
    curious = _raw(path)
    curious.settimeout(1.0)
    before = _resident(pid)
    try:
        # Either it is disconnected, because too many questions are unanswered, or the server reads no further ones.
        with pytest.raises((TimeoutError, BrokenPipeError, ConnectionResetError)):
            for request in range(20 * CLIENT_LIMIT):
                _say(curious, Kind.STATISTICS, request)
        assert _resident(pid) < before + 20_000_000
        with poolrt.connect(path) as pool:
            assert _works(pool)
    finally:
        curious.close()


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_silent_client_is_disconnected_and_clients_beyond_the_limit_are_refused(
    server: tuple[int, Path],
) -> None:
    _, path = server
    with poolrt.connect(path) as pool:
        silent = [_raw(path, hello=False) for _ in range(CLIENTS_LIMIT + 5)]
        try:
            started = time.monotonic()
            # Those beyond the limit are sent away at once
            assert all(client.recv(1) == b"" for client in silent[CLIENTS_LIMIT - 1 :])
            assert time.monotonic() - started < HELLO_S / 2
            assert _works(pool)
            # The others when their time is over
            for client in silent:
                client.settimeout(HELLO_S + BOUND_S)
            assert all(client.recv(1) == b"" for client in silent[: CLIENTS_LIMIT - 1])
            assert time.monotonic() - started > HELLO_S / 2
        finally:
            for client in silent:
                client.close()
    with poolrt.connect(path) as another:
        assert _works(another)


def test_a_function_that_leaves_a_fork_behind_does_not_keep_the_arena(server: tuple[int, Path]) -> None:
    """What a dead worker left behind must not be able to write into slots that others have got since."""
    _, path = server
    with poolrt.connect(path) as pool:
        maps, left = pool.submit(_fork_and_look).result(BOUND_S)
        try:
            assert "poolrt-arena" in maps
            assert "poolrt-arena" not in Path(f"/proc/{left}/maps").read_text(encoding="ascii")
            assert not any("poolrt-arena" in os.readlink(fd) for fd in Path(f"/proc/{left}/fd").iterdir())
        finally:
            os.kill(left, signal.SIGKILL)
        assert _works(pool)


def _fork_and_look() -> tuple[str, int]:
    import os
    import time
    from pathlib import Path

    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    return Path("/proc/self/maps").read_text(encoding="ascii"), pid


def test_random_messages_break_nothing(server: tuple[int, Path]) -> None:
    _, path = server
    generator = random.Random(3)
    values: list[Any] = [0, 1, 7, -1, 2**40, "x", b"x", None, True, [], [0], [1, 2], [[0, 1]], {}, {"a": 1}, 1.5]
    with poolrt.connect(path) as pool:
        for _ in range(150):
            client = _raw(path)
            try:
                for _ in range(4):
                    kind = generator.choice([k for k in Kind if k is not Kind.STOP])
                    fields = [generator.choice(values) for _ in range(generator.randrange(6))]
                    client.send(b"\0" + msgpack.packb([int(kind), *fields]))
            except (BrokenPipeError, ConnectionResetError):
                pass
            client.close()
        assert _works(pool)
        wait_until(lambda: pool.stats()["clients"] == 1, "the others have left")


def test_a_client_of_another_version_is_sent_away(server: tuple[int, Path]) -> None:
    stranger = _raw(server[1], hello=False)
    stranger.send(b"\0" + msgpack.packb([Kind.HELLO, VERSION + 1]))
    assert stranger.recv(65536) == b""
    stranger.close()


def test_a_client_that_does_not_read_its_answers_delays_no_other(server: tuple[int, Path]) -> None:
    _, path = server
    deaf = _raw(path)
    deaf.setblocking(False)
    sent = 0
    try:
        for request in range(200_000):
            deaf.send(b"\0" + msgpack.packb([Kind.STATISTICS, request]))
            sent += 1
    except BlockingIOError:
        pass
    assert sent > 10
    with poolrt.connect(path) as pool:
        assert _works(pool)
    deaf.close()


def test_a_server_can_be_stopped_and_a_socket_left_by_a_killed_one_is_replaced(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "poolrt.sock"
    command = _command(settings, path)
    killed = subprocess.Popen(command)
    wait_until(path.exists, "the server listens")
    killed.kill()
    killed.wait()
    assert path.exists()
    stopped = subprocess.Popen(command)
    wait_until(lambda: connects(path), "another server listens there")
    with poolrt.connect(path, reconnect_timeout_s=0.2) as pool:
        assert _works(pool)
        assert stop_server(path)
        with pytest.raises(CoordinatorLost):
            pool.stats()
    assert stopped.wait(BOUND_S) == 0
    assert not path.exists()
    with pytest.raises(CoordinatorLost):
        stop_server(path)


@needs_root
def test_a_client_of_another_user_is_disconnected_even_if_it_can_connect(server: tuple[int, Path]) -> None:
    path = server[1]
    modes = {place: place.stat().st_mode & 0o7777 for place in (path, path.parent)}
    try:
        path.chmod(0o666)
        path.parent.chmod(0o711)
        said = run_as_other(
            "os.chdir(os.path.dirname(sys.argv[1])); drop(); sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
            "sock.settimeout(10); sock.connect(os.path.basename(sys.argv[1])); print(sock.recv(100))",
            str(path),
        )
    finally:
        for place, mode in modes.items():
            place.chmod(mode)
    assert said == "b''\n"
    assert connects(path)


def test_a_path_without_a_listener_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CoordinatorLost, match="no coordinator listens at"):
        poolrt.connect(tmp_path / "none.sock")


def test_a_path_that_is_taken_is_an_error_and_starts_nothing(
    server: tuple[int, Path], settings: dict[str, Any]
) -> None:
    command = _command(settings, server[1])
    result = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert result.returncode == 1
    assert "Address already in use" in result.stderr
    assert os.path.exists(server[1])


def test_a_server_without_descriptors_does_not_spin_and_accepts_clients_once_it_has_some(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    with started(tmp_path / "s", settings) as server, poolrt.connect(server.path) as pool:
        assert pool.submit(abs, -1).result(BOUND_S) == 1
        # Given a server that can open next to no further descriptor
        used = max(int(fd) for fd in os.listdir(f"/proc/{server.pid}/fd")) + 1
        usual = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used, usual[1]))
        try:
            # When more clients connect than it has descriptors for
            waiting = [connect_socket(server.path) for _ in range(used)]
            wait_until(lambda: len(os.listdir(f"/proc/{server.pid}/fd")) >= used, "all descriptors are in use")
            begin, before = time.monotonic(), cpu_seconds(server.pid)
            time.sleep(1.5)
            # Then the server takes next to no time, and serves its other client
            assert cpu_seconds(server.pid) - before < 0.1 * (time.monotonic() - begin)
            assert pool.submit(abs, -2).result(BOUND_S) == 2
        finally:
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, usual)
        # And later ones once it has descriptors
        with poolrt.connect(server.path) as other:
            assert other.submit(abs, -3).result(BOUND_S) == 3
        for sock in waiting:
            sock.close()
