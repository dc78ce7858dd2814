"""Fork servers as the coordinator keeps them: replaced, let go and asked for again, with nothing watched for ever."""

from __future__ import annotations

import itertools
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.coordinator import processes as room
from poolrt.coordinator.instructions import Role
from poolrt.coordinator.processes import PRELOADED_IDLE_S, Processes, _start_fork_server
from poolrt.memory.arena import make_arena
from poolrt.workers.ipc.channel import Channel, ChannelClosed, MalformedMessage
from poolrt.workers.ipc.protocol import Kind

from .processes import BOUND_S, below, children, is_alive, relu_graph, wait_until, workers_of


class Bench:
    """The processes of a coordinator, with a loop around them that runs while something is waited for."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.connected: dict[int, Channel] = {}
        self.exited: list[int] = []
        self.doomed: list[int] = []
        self.actions: dict[int, Callable[[], None]] = {}
        self.numbers = itertools.count(1)
        self._poll = select.epoll()
        self._arena = make_arena(1 << 20)
        store = {"home": settings["home"], "url": settings["redis_url"]}
        options = {"threads": 1, "verbose": "0", "store": store, "constant_files": {}, "spin_us": 0, "max_cpu_isa": ""}
        self.processes = Processes(
            _start_fork_server(),
            self._arena,
            options,
            60.0,
            self.numbers,
            self._watch,
            self._unwatch,
            self._connect,
            self._exit,
            self.doomed.extend,
        )

    def spawn(self, role: Role) -> int:
        number = next(self.numbers)
        self.processes.spawn(number, role)
        return number

    def ready(self, number: int) -> int:
        """Wait until a process is ready and its fork server has answered; return its process id."""
        said: list[list[Any]] = []

        def look() -> bool:
            channel = self.connected.get(number)
            message = channel.receive() if channel is not None else None
            if message is not None:
                said.append(message)
            # Which of the two comes first is chance.
            return bool(said) and self.processes._children[number].pid != 0

        self.turn_until(look, f"process {number} is ready")
        assert said[0][0] == Kind.READY
        pid: int = said[0][1]
        return pid

    def turn_until(self, condition: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + BOUND_S
        while not condition():
            if time.monotonic() > until:
                pytest.fail(f"not within {BOUND_S} s: {what}")
            for fd, _ in self._poll.poll(0.01):
                if fd in self.actions:
                    self.actions[fd]()

    def close(self) -> None:
        self.processes.close()
        for channel in self.connected.values():
            channel.close()
        self._poll.close()
        os.close(self._arena)

    def _watch(self, fd: int, action: Callable[[], None]) -> None:
        self.actions[fd] = action
        self._poll.register(fd, select.EPOLLIN)

    def _unwatch(self, fd: int) -> None:
        del self.actions[fd]
        self._poll.unregister(fd)

    def _connect(self, number: int, channel: Channel) -> None:
        self.connected[number] = channel

    def _exit(self, number: int) -> None:
        self.exited.append(number)


@pytest.fixture
def bench(settings: dict[str, Any]) -> Iterator[Bench]:
    """A bench, whose processes are gone at the end."""
    before = set(children(os.getpid()))
    bench = Bench(settings)
    yield bench
    bench.close()
    assert set(children(os.getpid())) == before


def test_a_preloaded_fork_server_that_is_asked_for_while_its_predecessor_still_ends_is_another_one(
    bench: Bench,
) -> None:
    first = bench.spawn(Role.CREATOR)
    pid = bench.ready(first)
    watched = set(bench.actions)
    # Let go at once: its process has not ended when the next creator is wanted
    bench.connected[first].close()
    bench.turn_until(lambda: first in bench.exited, "the creator has gone")
    bench.processes.tick(1000.0)
    bench.processes.tick(1000.0 + PRELOADED_IDLE_S + 1)
    second = bench.spawn(Role.CREATOR)
    assert bench.ready(second) != pid
    bench.turn_until(lambda: len(bench.actions) == len(watched), "nothing of the first is watched any more")
    assert bench.exited == [first]
    # And nothing that is readable for ever is left: it would keep the coordinator from ever sleeping
    assert bench._poll.poll(0.2) == []


def test_a_fork_server_that_is_preloaded_ahead_forks_the_creators_that_come_later(bench: Bench) -> None:
    bench.processes.preload()
    preloaded = bench.processes._preloaded
    bench.processes.preload()
    number = bench.spawn(Role.CREATOR)
    pid = bench.ready(number)
    assert preloaded is not None
    assert preloaded is bench.processes._preloaded
    assert pid in children(bench.processes._children[preloaded.number].pid)


def test_a_killed_fork_server_takes_its_workers_with_it_and_another_is_there_when_it_is_needed(bench: Bench) -> None:
    first, second = bench.spawn(Role.WORKER), bench.spawn(Role.WORKER)
    workers = [bench.ready(first), bench.ready(second)]
    fork_server = int(Path(f"/proc/{workers[0]}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])
    os.kill(fork_server, signal.SIGKILL)
    bench.turn_until(lambda: sorted(bench.exited) == [first, second], "both are reported")
    assert not any(is_alive(pid) for pid in [fork_server, *workers])
    third = bench.spawn(Role.WORKER)
    assert is_alive(bench.ready(third))


def test_processes_that_are_not_forked_yet_when_their_fork_server_exits_are_reported_once_each(bench: Bench) -> None:
    os.kill(children(os.getpid())[-1], signal.SIGSTOP)
    asked = [bench.spawn(Role.WORKER) for _ in range(3)]
    asked.append(bench.spawn(Role.CREATOR))
    os.kill(children(os.getpid())[-1], signal.SIGKILL)
    bench.turn_until(lambda: len(bench.exited) >= len(asked), "all are reported")
    assert sorted(bench.exited) == sorted(asked)
    # And each as one that its fork server took with it
    assert sorted(bench.doomed) == sorted(asked)
    assert is_alive(bench.ready(bench.spawn(Role.WORKER)))
    assert len(bench.exited) == len(asked)


def test_a_process_that_is_killed_before_its_fork_is_killed_once_it_is_forked(bench: Bench) -> None:
    number = bench.spawn(Role.WORKER)
    bench.processes.kill(number)
    bench.turn_until(lambda: bench.exited == [number], "it is reported")
    with pytest.raises(ChannelClosed):
        while True:
            bench.connected[number].receive(block=True)


def test_closing_waits_for_the_deaths_of_those_whose_fork_server_cannot_end_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "GRACE_S", 0.1)
    # Given workers of a fork server that is stopped
    pidfds = [os.pidfd_open(bench.ready(bench.spawn(Role.WORKER))) for _ in range(2)]
    plain = bench.processes._plain
    assert plain is not None
    os.kill(plain.pid, signal.SIGSTOP)
    # When all are ended
    bench.processes.close()
    # Then none is left
    assert sorted(select.select(pidfds, [], [], 0)[0]) == sorted(pidfds)
    for pidfd in pidfds:
        os.close(pidfd)


def test_without_file_descriptors_a_process_is_reported_as_dead_and_nothing_breaks(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    worker = bench.spawn(Role.WORKER)
    bench.ready(worker)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest + 1 - len(os.listdir("/proc/self/fd")))]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        lost = [bench.spawn(Role.WORKER), bench.spawn(Role.CREATOR)]
        assert bench.exited == lost
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in spare:
            os.close(fd)
    assert "can be started: [Errno 24]" in capfd.readouterr().err
    assert is_alive(bench.ready(bench.spawn(Role.WORKER)))
    assert is_alive(bench.ready(bench.spawn(Role.CREATOR)))


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_fork_server_that_is_killed_while_workers_start_costs_no_result(
    settings: dict[str, Any], rounds: int
) -> None:
    for number in range(rounds):
        with poolrt.Pool(workers=8, threads=1, **settings) as pool:
            # Given workers that are starting, at another moment each time
            coordinator = pool.stats()["pid"]
            wait_until(lambda pid=coordinator: bool(below(pid, 2)), "a worker is there")  # type: ignore[misc]
            time.sleep(0.003 * number)
            # When their fork server is killed
            os.kill(children(coordinator)[0], signal.SIGKILL)
            # Then a run gets its result, and all workers are there
            x = np.ones((4, 8), np.float32)
            assert pool.load(relu_graph()).submit(x=x).result(BOUND_S)["y"].sum() == 32
            assert len(workers_of(pool)) == 8


def test_a_child_whose_descriptor_does_not_arrive_is_reaped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a process that has no free descriptor when the answer to a fork request arrives
    def refuse(channel: Channel) -> int:
        monkeypatch.undo()
        raise MalformedMessage("a message came without its file descriptor")

    monkeypatch.setattr(Channel, "take_fd", refuse)
    number = bench.spawn(Role.WORKER)
    # Then the child is reported as exited, and the next one starts
    bench.turn_until(lambda: number in bench.exited, "the child is reported")
    assert is_alive(bench.ready(bench.spawn(Role.WORKER)))
