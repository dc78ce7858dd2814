"""No message costs more than its size: what one client sends takes neither time nor memory from the others."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgpack
import numpy as np
import pytest

import poolrt
from poolrt.coordinator.log_lines import SAME_LIMIT, WINDOW_S
from poolrt.coordinator.pacing import (
    ACTIVE_S,
    LONG_MESSAGE_PAUSE_S,
    OCCASIONAL_A_SECOND,
    OCCASIONAL_AT_ONCE,
    REFUSED_PAUSE_S,
)
from poolrt.coordinator.peers import UNFINISHED_BYTES, Peer, find_greedy
from poolrt.coordinator.result_rooms import SLOTS_LIMIT
from poolrt.errors import ArenaFull, GraphRefused, PoolRefused
from poolrt.functions import call_pickles, sent_functions
from poolrt.graph.packed import ITEMS_LIMIT, NODES_LIMIT, PORTS_LIMIT
from poolrt.workers.ipc.channel import FRAME, Channel, pair
from poolrt.workers.ipc.protocol import NUMBERS_LIMIT, Kind

from .attacks import KINDS, Attacker, connect, frames
from .processes import BOUND_S, connects, relu_graph, wait_until

#: Bytes by which the coordinator's memory may grow for good.
KEPT: Final = 20 * 1000 * 1000
#: Seconds of the coordinator's processor time that a message may take here; without bounds, one of 8 MiB took 2.6.
COST_S: Final = 0.5
#: Kinds whose graphs are sound, or nearly: the background thread works on each as it would on an honest client's.
LONG: Final = ("graph of nodes", "graph of names", "graph of shapes", "graph of constants", "graph of values")
#: Seconds that the attacks of one kind may take in the long form; the last ones are left out then.
LONG_S: Final = 15.0
#: Seconds that a run beside them may take. Without bounds, one message stopped all runs for 2.6 s and longer ones for 26.
STALL_S: Final = 2.0


@pytest.fixture(scope="module")
def server(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The path of a server with two workers."""
    path = tmp_path_factory.mktemp("costly") / "poolrt.sock"
    words = ["serve", "--workers", "2", "--socket", str(path)]
    named = {"HOME": settings["home"], "REDIS_URL": settings["redis_url"], "ARENA_BYTES": settings["arena_bytes"]}
    environ = {**os.environ, "POOLRT_THREADS": "1", **{f"POOLRT_{name}": str(value) for name, value in named.items()}}
    with open(path.parent / "lines", "wb") as lines:
        process = subprocess.Popen([sys.executable, "-m", "poolrt", *words], env=environ, stdout=lines, stderr=lines)
    try:
        wait_until(lambda: connects(path) or process.poll() is not None, "the server listens")
        yield str(path)
        assert process.poll() is None
        process.terminate()
        assert process.wait(BOUND_S) == 0
    finally:
        process.kill()
        process.wait()


class _Neighbour:
    """Another client, whose runs are timed in a thread."""

    def __init__(self, path: str) -> None:
        self._pool = poolrt.connect(path)
        self._model = self._pool.load(relu_graph())
        self._x = np.ones((4, 8), np.float32)
        self._stop = threading.Event()
        self.pid = int(self._pool.stats()["pid"])
        self.seconds: list[float] = []
        #: The longest time between the ends of two runs, in seconds.
        self.longest_gap_s = 0.0

    def run(self) -> None:
        begin = time.perf_counter()
        assert self._model.run(x=self._x)["y"].sum() == 32
        self.seconds.append(time.perf_counter() - begin)

    @contextmanager
    def running(self) -> Iterator[list[float]]:
        """Run again and again; the list has the seconds that each run took, in the end."""
        self.seconds, self.longest_gap_s, self._stop = [], 0.0, threading.Event()
        thread = threading.Thread(target=self._run_on)
        thread.start()
        try:
            yield self.seconds
        finally:
            self._stop.set()
            thread.join(BOUND_S)
        assert not thread.is_alive()

    def close(self) -> None:
        self._pool.close()

    def _run_on(self) -> None:
        before = time.perf_counter()
        while not self._stop.is_set():
            self.run()
            now = time.perf_counter()
            self.longest_gap_s, before = max(self.longest_gap_s, now - before), now


@pytest.fixture(scope="module")
def neighbour(server: str) -> Iterator[_Neighbour]:
    found = _Neighbour(server)
    yield found
    found.close()


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def _processor_seconds(pid: int) -> float:
    """Return the processor time of all threads of a process, to the nanosecond."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return found / 1e9


def test_messages_of_every_costly_kind_cost_little_and_leave_no_memory(server: str, neighbour: _Neighbour) -> None:
    for _ in range(20):
        neighbour.run()
    before = _resident(neighbour.pid)
    cost: dict[str, float] = {}
    for name in [name for name in KINDS if name not in LONG]:
        attacker = Attacker(server)
        began = _processor_seconds(neighbour.pid)
        for number in range(2):
            attacker.send(frames(KINDS[name](number)))
            attacker.settle()
        attacker.leave()
        neighbour.run()
        cost[name] = (_processor_seconds(neighbour.pid) - began) / 2
    assert {name: seconds for name, seconds in cost.items() if seconds > COST_S} == {}
    assert max(neighbour.seconds) < BOUND_S / 2
    wait_until(lambda: _resident(neighbour.pid) <= before + KEPT, "the memory is returned")


def test_a_client_has_a_bounded_number_of_slots_and_gets_an_error_beyond(server: str, neighbour: _Neighbour) -> None:
    client = connect(server)
    answer: list[Any] = []
    for request in range(SLOTS_LIMIT // NUMBERS_LIMIT + 1):
        assert not answer or answer[0] == Kind.ALLOCATED
        client.send(b"\0" + msgpack.packb([Kind.ALLOCATE, request, [1] * NUMBERS_LIMIT]))
        answer = _hear(client)
    assert "more than 65536 tensors in shared memory: 65536 are held, 1024 wanted" in str(answer)
    client.close()
    neighbour.run()


def _hear(client: socket.socket) -> list[Any]:
    answer: list[Any] = msgpack.unpackb(client.recv(FRAME + 2)[1:])
    return answer


@pytest.mark.parametrize(
    ("name", "count", "least"),
    [
        ("statistics", OCCASIONAL_AT_ONCE + 25, 25 / OCCASIONAL_A_SECOND),
        pytest.param("withdrawals", OCCASIONAL_AT_ONCE + 15, 15 / OCCASIONAL_A_SECOND, marks=pytest.mark.slow),
        pytest.param(
            "messages about nothing", OCCASIONAL_AT_ONCE + 15, 15 / OCCASIONAL_A_SECOND, marks=pytest.mark.slow
        ),
        ("graph of lists", 4, 4 * 64 * LONG_MESSAGE_PAUSE_S),  # 64 times two frames
        ("garbage", 5, 4 * REFUSED_PAUSE_S),  # the first is not a second attempt
    ],
)
@pytest.mark.one_in(2)
def test_a_process_that_asks_for_much_is_read_slowly_beside_an_active_one(
    server: str, neighbour: _Neighbour, name: str, count: int, least: float
) -> None:
    command = [sys.executable, "-m", "tests.poolrt.pool.attacks", server, name, str(count), str(BOUND_S)]

    def attack() -> tuple[float, int]:
        with neighbour.running() as times:
            found = subprocess.run(command, input="\n", check=True, capture_output=True, text=True, timeout=2 * BOUND_S)
        sent, seconds = found.stdout.split()[1:]
        assert int(sent) == count
        return float(seconds), len(times)

    until = time.monotonic() + 2 * BOUND_S
    seconds, runs = attack()
    while neighbour.longest_gap_s >= ACTIVE_S / 2 and time.monotonic() < until:
        seconds, runs = attack()  # the machine has held the neighbour up, which then counts as idle
    # Half of it, for the same reason
    assert seconds > least / 2
    assert runs > 100


def test_half_messages_of_one_process_are_bounded_together_and_cost_others_nothing(
    server: str, neighbour: _Neighbour
) -> None:
    before = _resident(neighbour.pid)
    honest = connect(server)
    whole = [*frames(msgpack.packb([Kind.CALL, 1, 0, 0, b"x" * FRAME]))]
    honest.send(whole[0])
    half = b"\1" + msgpack.packb([Kind.CALL, 1, 0, 0, b""])[:5] + b"\xc6" + (100 << 20).to_bytes(4, "big")
    greedy = [connect(server) for _ in range(5)]
    try:
        # Five halves of 60 MiB exceed the limit for all clients, and belong to one process: this one. So does the sixth.
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for number in range(60 * 16):
                for sock in greedy:
                    sock.send(half.ljust(FRAME + 1, b"x") if not number else b"\1" + b"x" * FRAME)
        neighbour.run()
        wait_until(lambda: _resident(neighbour.pid) <= before + KEPT, "the memory is returned")
    finally:
        for sock in (honest, *greedy):
            sock.close()


def test_clients_that_are_refused_again_and_again_fill_no_disk_with_lines(server: str) -> None:
    lines = Path(server).parent / "lines"
    before = lines.stat().st_size

    def found() -> list[bytes]:
        return [line for line in lines.read_bytes()[before:].splitlines() if not line.startswith(b"listening")]

    begin = time.monotonic()
    for _ in range(200):
        with connect(server) as client:
            client.send(b"\0" + msgpack.packb([Kind.HELLO, 0]))
            assert client.recv(FRAME) == b""
    # Earlier tests may have used up the lines of a window, whose end prints one
    wait_until(lambda: found() != [], "a line about them is printed")
    # Windows that have begun meanwhile, however long that took, and one before; a line at the end of each
    windows = (time.monotonic() - begin) // WINDOW_S + 2
    assert len(found()) <= windows * (SAME_LIMIT + 1), found()
    assert all(b"disconnecting client" in line or b"more lines about clients" in line for line in found()), found()


def test_the_client_whose_unfinished_messages_are_longest_is_the_greedy_one() -> None:
    peers: list[Peer] = []
    for number, (pid, nbytes) in enumerate([(7, 3), (8, 2), (8, 2), (0, 3), (0, 1)], 1):
        ours, theirs = pair()
        theirs.close()
        peers.append(Peer(number, Channel(ours), number, True, True, pid=pid))
        peers[-1].channel._size = nbytes
    try:
        assert find_greedy(peers, 11) == []
        assert [peer.number for peer in find_greedy(peers, 10)] == [2, 3]
        assert UNFINISHED_BYTES < 2**30
    finally:
        for peer in peers:
            peer.channel.close()


def test_a_graph_beyond_a_limit_is_refused_in_the_process_that_loads_it(pool: poolrt.Pool) -> None:
    many = poolrt.Graph("many")
    for number in range(PORTS_LIMIT + 1):
        many.output(f"y{number}", many.eltwise(many.input(f"x{number}", (1,)), "relu"))
    with pytest.raises(GraphRefused, match=f"'many' has {PORTS_LIMIT + 1} inputs, more than {PORTS_LIMIT}: load it in"):
        pool.load(many)
    named = poolrt.Graph("named")
    named.output("y", named.eltwise(named.input("x" * 5000, (1,)), "relu"))
    with pytest.raises(GraphRefused, match="the name of an input or output has more than 4096 bytes: 'xxxx"):
        pool.load(named)
    assert min(ITEMS_LIMIT, NODES_LIMIT) > PORTS_LIMIT
    assert pool.load(relu_graph()).run(x=np.ones((4, 8), np.float32))["y"].sum() == 32


def test_functions_wait_in_the_client_for_bytes_and_one_that_is_too_large_is_refused_there(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with poolrt.Pool(workers=2, threads=1, **settings) as pool:
        full = []
        for nbytes in (1 << 20, 1 << 14):
            with suppress(ArenaFull):
                while True:
                    full.append(pool.empty(nbytes, "uint8"))
        _wait_in_the_client(pool, monkeypatch)


def _wait_in_the_client(pool: poolrt.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call functions with long arguments on a pool whose arena is full, so that they go by messages."""
    monkeypatch.setattr(sent_functions, "BYTES_IN_FLIGHT", 100_000)
    sent = pool._functions(pool._session.link)
    most = itertools.accumulate((sent._under_way for _ in pool.map(len, [b"x" * 30_000] * 20)), max)
    assert max(most) <= 3
    assert pool.submit(len, b"x" * 200_000).result(BOUND_S) == 200_000
    monkeypatch.setattr(call_pickles, "CALL_BYTES", 1_000_000)
    with pytest.raises(
        PoolRefused,
        match=r"arguments, for which the arena has no room, have 1\d{6} bytes, more than 934464: split the arguments",
    ):
        pool.submit(len, b"x" * 1_000_000)
    assert sent._bytes == 0


def test_an_exception_with_a_large_text_or_value_reaches_the_caller(pool: poolrt.Pool) -> None:
    with pytest.raises(ValueError, match="xxx") as failed:
        pool.submit(_raise_large).result(BOUND_S)
    lengths = len(str(failed.value)), len(str(failed.value.__cause__))
    assert lengths[0] == 3_000_000
    assert lengths[1] < 20_000


def _raise_large() -> None:
    raise ValueError("x" * 3_000_000)


@pytest.mark.slow
@pytest.mark.timeout(LONG_S + 120)
@pytest.mark.parametrize("name", KINDS)
def test_a_thousand_messages_of_a_kind_stop_no_run_and_leave_no_memory(
    server: str, neighbour: _Neighbour, name: str
) -> None:
    """`benchmarks/messages.py` measures how much they delay runs."""
    before = _resident(neighbour.pid)
    # In a process of its own: threads of one would delay each other.
    command = [sys.executable, "-m", "tests.poolrt.pool.attacks", server, name, "1000", str(LONG_S)]
    with neighbour.running() as attacked:
        subprocess.run(command, input="\n", check=True, capture_output=True, text=True, timeout=LONG_S + 60)
    grown = _resident(neighbour.pid) - before
    # The allocator keeps some pages between those of a large graph.
    kept = 2 * KEPT if name in LONG else KEPT
    wait_until(
        lambda: _resident(neighbour.pid) <= before + kept, f"the memory is returned: {grown}", seconds=2 * BOUND_S
    )
    assert max(attacked) < STALL_S
