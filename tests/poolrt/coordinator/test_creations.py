"""Creations: once for all who want them, the longest first, repeated once after a death."""

from __future__ import annotations

import itertools

from poolrt.coordinator.creations import (
    BUSY_S,
    FAILED_STARTS_LIMIT,
    IDLE_S,
    KILLED_LIMIT,
    LEAVE_S,
    LOST_LIMIT,
    Creation,
    Creations,
)
from poolrt.coordinator.exits import KILLED
from poolrt.coordinator.failed_starts import KILLED_S, KILLED_STARTS_LIMIT, LOST_FORK_SERVERS_LIMIT
from poolrt.coordinator.instructions import HangUp, Instruction, Kill, PrimitiveToLoad, Role, Send, Spawn
from poolrt.coordinator.watchdog import Limits
from poolrt.errors import CreatorLost
from poolrt.workers.ipc.protocol import Kind


class _Bench:
    def __init__(self, limit: int) -> None:
        self.out: list[Instruction] = []
        limits = Limits(start_s=30.0, run_s=60.0, creation_s=90.0)
        self.creations = Creations(limit, limits, itertools.count(1), self.out)

    def want(
        self, digest: str, cost: float = 1.0, load: int = 1, compiles: bool = True, kernels: tuple[bytes, ...] = ()
    ) -> None:
        primitive = PrimitiveToLoad(digest, f"primitive {digest}", [digest], cost, compiles)
        self.creations.want(primitive, load, 0, frozenset(kernels))

    def come_up(self) -> list[int]:
        self.creations.schedule()
        spawned = [step.peer for step in self.out if isinstance(step, Spawn) and step.role is Role.CREATOR]
        self.out = [step for step in self.out if not isinstance(step, Spawn)]
        self.creations._out = self.out
        for number in spawned:
            self.creations.mark_ready(number)
            self.creations.schedule()
        return spawned

    def sent(self) -> list[tuple[int, int, str]]:
        return [
            (s.peer, s.message[1], s.message[2][0])
            for s in self.out
            if isinstance(s, Send) and s.message[0] == Kind.CREATE
        ]


def test_a_primitive_that_two_loads_want_is_created_once_for_both() -> None:
    bench = _Bench(2)
    bench.want("a", load=1)
    bench.want("a", load=2)
    (creator,) = bench.come_up()
    ((peer, token, _),) = bench.sent()
    assert peer == creator
    creation = bench.creations.finish(creator, token)
    assert creation is not None
    assert creation.waiting == [(1, 0), (2, 0)]


def test_the_longest_creations_go_first_and_creators_are_no_more_than_the_limit() -> None:
    bench = _Bench(2)
    for digest, cost in (("short", 1.0), ("long", 9.0), ("middle", 4.0), ("tiny", 0.1)):
        bench.want(digest, cost)
    assert len(bench.come_up()) == 2
    assert [digest for _, _, digest in bench.sent()] == ["long", "middle"]


def test_a_creation_goes_to_the_creator_that_has_its_kernel() -> None:
    bench = _Bench(2)
    for digest, cost, kernel in (
        ("a", 9.0, b"k"),
        ("b", 8.0, b"k"),
        ("c", 7.0, b"l"),
        ("d", 6.0, b"k"),
        ("e", 5.0, b"l"),
    ):
        bench.want(digest, cost, kernels=(kernel,))
    first, second = bench.come_up()
    assert [(peer, digest) for peer, _, digest in bench.sent()] == [(first, "a"), (second, "c")]
    # The second has nothing to do but what shares its kernel, and then waits: it is not ended, and compiles nothing twice.
    for _ in range(2):
        assert bench.creations.finish(second, bench.sent()[-1][1])
        bench.creations.schedule()
    assert bench.sent()[-1][::2] == (second, "e")
    assert bench.creations.waiting == 2
    bench.creations.tick(IDLE_S / 4)
    assert not [step for step in bench.out if isinstance(step, HangUp)]
    # The first takes what it has the kernel of.
    assert bench.creations.finish(first, bench.sent()[0][1])
    bench.creations.schedule()
    assert bench.sent()[-1][::2] == (first, "b")
    # Once it was busy for long, or has gone, another compiles the kernel again.
    bench.creations.tick(IDLE_S / 4 + BUSY_S)
    bench.creations.schedule()
    assert bench.sent()[-1][::2] == (second, "d")
    assert bench.creations.reap(first) == []
    assert bench.creations.finish(second, bench.sent()[-1][1])
    bench.creations.schedule()
    assert bench.sent()[-1][::2] == (second, "b")


def test_what_needs_no_compiler_is_created_in_a_process_without_one_which_makes_room_for_one_that_has_it() -> None:
    bench = _Bench(1)
    bench.want("call", compiles=False)
    bench.creations.schedule()
    assert [step.compiles for step in bench.out if isinstance(step, Spawn)] == [False]
    (plain,) = bench.come_up()
    ((peer, token, digest),) = bench.sent()
    assert (peer, digest) == (plain, "call")
    bench.creations.finish(plain, token)
    # It takes another such creation before a longer one that compiles.
    bench.want("long", 9.0)
    bench.want("call again", compiles=False)
    bench.creations.schedule()
    _, token, digest = bench.sent()[-1]
    assert digest == "call again"
    bench.creations.finish(plain, token)
    # The limit is 1, and only work for a compiler is left.
    bench.creations.schedule()
    assert [step for step in bench.out if isinstance(step, HangUp)] == [HangUp(plain, "idle")]
    compiling = bench.come_up()
    assert compiling
    assert bench.sent()[-1][2] == "long"
    # A creator that compiles takes everything.
    _, token, _ = bench.sent()[-1]
    bench.creations.finish(compiling[-1], token)
    bench.want("another call", compiles=False)
    bench.creations.schedule()
    assert bench.sent()[-1][2] == "another call"


def test_no_more_creators_are_started_than_there_is_work_for() -> None:
    bench = _Bench(8)
    bench.want("a")
    assert len(bench.come_up()) == 1


def test_a_creation_whose_creator_died_is_repeated_once_and_then_an_error_that_names_it() -> None:
    bench = _Bench(1)
    bench.want("a")
    for _ in range(LOST_LIMIT - 1):
        (creator,) = bench.come_up()
        assert bench.creations.reap(creator) == []
    (creator,) = bench.come_up()
    ((creation, error),) = bench.creations.reap(creator)
    assert creation.waiting == [(1, 0)]
    assert (error.primitive, error.attempts) == ("primitive a", LOST_LIMIT)
    # A later load tries again.
    bench.want("a", load=5)
    assert len(bench.come_up()) == 1


def test_a_creation_whose_creators_were_killed_from_outside_is_repeated_twice() -> None:
    bench = _Bench(1)
    bench.want("a")
    for _ in range(KILLED_LIMIT - 1):
        (creator,) = bench.come_up()
        assert bench.creations.reap(creator, KILLED) == []
    (creator,) = bench.come_up()
    ((_, error),) = bench.creations.reap(creator, KILLED)
    assert error.attempts == KILLED_LIMIT
    assert str(error).endswith(
        "lost 3 processes (the compiler crashed, or memory ran out); the last one was ended by SIGKILL"
    )


def test_a_creation_that_is_lost_with_its_fork_server_is_repeated_though_not_for_ever() -> None:
    bench = _Bench(1)
    bench.want("a")
    lost: list[CreatorLost] = []
    for number in range(LOST_FORK_SERVERS_LIMIT + KILLED_LIMIT):
        assert not lost, number
        (creator,) = bench.come_up()
        bench.creations.creators[creator].doomed = True
        lost = [error for _, error in bench.creations.reap(creator, KILLED)]
    assert [error.attempts for error in lost] == [KILLED_LIMIT]


def test_starts_that_are_killed_from_outside_are_repeated_for_a_while_and_then_an_error_that_says_so() -> None:
    bench = _Bench(1)
    bench.want("a")
    lost: list[tuple[Creation, CreatorLost]] = []
    for second in range(int(KILLED_S) + 2):
        bench.creations.tick(100.0 + second)
        bench.creations.schedule()
        (spawn,) = [step for step in bench.out if isinstance(step, Spawn)]
        bench.out.remove(spawn)
        bench.creations.creators[spawn.peer].doomed = second % 2 == 0
        lost = bench.creations.reap(spawn.peer, KILLED)
        assert bool(lost) == (second > KILLED_S)
    ((_, error),) = lost
    assert str(error).endswith("creator processes exited while they started; the last one was ended by SIGKILL")


def test_starts_that_are_killed_from_outside_at_once_are_an_error_after_some() -> None:
    bench = _Bench(2)
    bench.want("a")
    bench.want("b")
    for number in range(KILLED_STARTS_LIMIT):
        bench.creations.schedule()
        spawned = [step for step in bench.out if isinstance(step, Spawn)]
        assert len(spawned) == 2
        bench.out.clear()
        lost = [each for spawn in spawned for each in bench.creations.reap(spawn.peer, KILLED)]
        # Two that are killed together, as by the end of their fork server, count once
        assert len(lost) == (2 if number == KILLED_STARTS_LIMIT - 1 else 0)
    # A later load tries again
    bench.want("a")
    assert len(bench.come_up()) == 1


def test_starts_that_are_killed_because_they_take_too_long_are_not_repeated_for_that_long() -> None:
    bench = _Bench(1)
    bench.want("a")
    for number in range(FAILED_STARTS_LIMIT):
        bench.creations.schedule()
        (spawn,) = [step for step in bench.out if isinstance(step, Spawn)]
        bench.out.remove(spawn)
        bench.creations.creators[spawn.peer].overdue = True
        assert len(bench.creations.reap(spawn.peer, KILLED)) == (number == FAILED_STARTS_LIMIT - 1)


def test_creators_that_die_at_birth_end_all_creations_with_an_error() -> None:
    bench = _Bench(1)
    bench.want("a")
    bench.want("b")
    lost: list[str] = []
    for _ in range(FAILED_STARTS_LIMIT):
        bench.creations.schedule()
        (spawn,) = [step for step in bench.out if isinstance(step, Spawn)]
        bench.out.remove(spawn)
        assert not lost
        lost = [error.primitive for _, error in bench.creations.reap(spawn.peer)]
    assert sorted(lost) == ["primitive a", "primitive b"]
    assert bench.creations.waiting == 0


def test_creators_that_exit_with_their_fork_server_are_started_again_though_not_for_ever() -> None:
    bench = _Bench(1)
    bench.want("a")
    lost: list[CreatorLost] = []
    for _ in range(LOST_FORK_SERVERS_LIMIT):
        bench.creations.schedule()
        (spawn,) = [step for step in bench.out if isinstance(step, Spawn)]
        bench.out.remove(spawn)
        assert not lost
        bench.creations.creators[spawn.peer].doomed = True
        lost = [error for _, error in bench.creations.reap(spawn.peer)]
    assert [error.attempts for error in lost] == [LOST_FORK_SERVERS_LIMIT]
    assert bench.creations.waiting == 0


def test_a_creation_without_a_waiter_is_not_begun() -> None:
    bench = _Bench(1)
    bench.want("a", cost=2.0, load=1)
    bench.want("b", load=1)
    bench.want("b", load=2)
    bench.want("c", load=1)
    bench.come_up()
    bench.creations.withdraw(1)
    assert bench.creations.waiting == 1  # b, for load 2; a is under way


def test_an_idle_creator_is_let_go_after_a_while_but_not_while_it_works() -> None:
    bench = _Bench(1)
    bench.want("a")
    (creator,) = bench.come_up()
    bench.creations.tick(IDLE_S * 3)
    assert not [step for step in bench.out if isinstance(step, HangUp)]
    bench.creations.finish(creator, bench.sent()[0][1])
    bench.creations.tick(IDLE_S * 3.5)
    assert not [step for step in bench.out if isinstance(step, HangUp)]
    bench.creations.tick(IDLE_S * 4.5)
    assert [step.peer for step in bench.out if isinstance(step, HangUp)] == [creator]
    # It is leaving: new work needs another, although this one has not gone yet.
    bench.want("b")
    assert bench.come_up() != [creator]


def test_a_creator_has_a_limit_for_its_start_for_each_creation_and_for_its_end_but_may_idle() -> None:
    bench = _Bench(1)
    bench.want("a")
    bench.creations.schedule()
    ((_, what, limit),) = bench.creations.at_work()
    assert (what, limit) == ("start", 30.0)
    (creator,) = bench.come_up()
    ((_, token, limit),) = bench.creations.at_work()
    assert (token, limit) == (bench.sent()[0][1], 90.0)
    bench.creations.finish(creator, bench.sent()[0][1])
    assert list(bench.creations.at_work()) == []
    bench.creations.tick(IDLE_S)
    ((_, what, limit),) = bench.creations.at_work()
    assert (what, limit) == ("end", LEAVE_S)


def test_a_creation_that_takes_too_long_twice_is_an_error_that_names_the_setting() -> None:
    bench = _Bench(1)
    bench.want("a")
    lost: list[str] = []
    for _ in range(LOST_LIMIT):
        assert not lost
        (creator,) = bench.come_up()
        (item,) = bench.creations.at_work()
        bench.creations.give_up_on(item)
        bench.creations.give_up_on(item)  # it has not died yet
        (kill,) = [step for step in bench.out if isinstance(step, Kill)]
        bench.out.remove(kill)
        assert kill == Kill(creator, "creating primitive a took longer than 90 s")
        lost = [str(error) for _, error in bench.creations.reap(creator)]
    assert lost == [
        "creating primitive a lost 2 processes; "
        "2 of them were killed because creation took longer than 90 s (the setting creation_limit_s)"
    ]
