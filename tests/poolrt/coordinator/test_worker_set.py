"""The worker set: which worker gets what, what is repeated after a death and what is not, and when a pool gives up."""

from __future__ import annotations

import itertools

from poolrt.arena import Allocator
from poolrt.coordinator.instructions import Instruction, Kill, Role, Send, Spawn
from poolrt.coordinator.jobs import Job, Model
from poolrt.coordinator.leases import Leases
from poolrt.coordinator.watchdog import Limits
from poolrt.coordinator.worker_set import BACK_OFF_S, FAILED_STARTS_LIMIT, WorkerSet
from poolrt.errors import ArenaFull, PoolError, WorkerLost
from poolrt.workers.ipc.protocol import Kind


class _Bench:
    """A worker set with everything that it gives out, and the jobs that it gives up."""

    def __init__(self, workers: int, arena: int = 1 << 20) -> None:
        self.numbers = itertools.count(1)
        self.leases = Leases(Allocator(arena))
        self.out: list[Instruction] = []
        self.failed: list[tuple[Job, PoolError]] = []
        limits = Limits(start_s=30.0, run_s=60.0, creation_s=90.0)
        self.worker_set = WorkerSet(
            workers, 2, limits, self.leases, self.numbers, self.out, lambda job, error: self.failed.append((job, error))
        )
        self.worker_set.spawn_missing()
        self.come_up()

    def come_up(self) -> None:
        for step in self.taken():
            if isinstance(step, Spawn):
                assert step.role is Role.WORKER
                self.worker_set.mark_ready(step.peer, 1000 + step.peer)
        self.worker_set.dispatch()

    def taken(self) -> list[Instruction]:
        out = self.out[:]
        self.out.clear()
        return out

    def model(self, outputs: int = 100) -> Model:
        return Model(next(self.numbers), 0, "net", 7, [], [], [], [], [outputs])

    def run(self, model: Model) -> Job:
        job = Job(Kind.EXECUTE, next(self.numbers), model.name, model=model)
        self.worker_set.submit(job)
        self.worker_set.dispatch()
        return job

    def call(self) -> Job:
        job = Job(Kind.APPLY, next(self.numbers), "function")
        self.worker_set.submit(job)
        self.worker_set.dispatch()
        return job

    def owner(self, job: Job) -> int | None:
        return next((n for n, w in self.worker_set.workers.items() if job.token in w.jobs), None)


def test_runs_are_spread_first_and_then_two_lie_ready_at_each_worker() -> None:
    bench = _Bench(2)
    jobs = [bench.run(bench.model()) for _ in range(5)]
    owners = [bench.owner(job) for job in jobs]
    assert owners[0] != owners[1]
    assert sorted(w.load for w in bench.worker_set.workers.values()) == [2, 2]
    assert owners[4] is None


def test_an_idle_worker_that_has_the_model_is_preferred() -> None:
    bench = _Bench(3)
    first = bench.run(bench.model())
    bench.worker_set.finish(bench.owner(first) or 0, first.token)
    model = bench.model()
    second = bench.run(bench.model())
    job = bench.run(model)
    place = bench.owner(job)
    assert place not in (None, bench.owner(second))
    bench.worker_set.finish(place or 0, job.token)
    bench.worker_set.finish(bench.owner(second) or 0, second.token)
    assert bench.owner(bench.run(model)) == place


def test_a_model_is_sent_once_to_each_worker_that_needs_it() -> None:
    bench = _Bench(1)
    model = bench.model()
    for _ in range(2):
        bench.run(model)
    kinds = [step.message[0] for step in bench.taken() if isinstance(step, Send)]
    assert kinds == [Kind.MODEL, Kind.EXECUTE, Kind.EXECUTE]


def test_a_run_whose_worker_died_is_repeated_in_fresh_slots_and_given_up_after_the_limit() -> None:
    bench = _Bench(1)
    job = bench.run(bench.model())
    for death in range(3):
        assert not bench.failed
        worker = bench.owner(job)
        assert worker is not None, f"not running after {death} deaths"
        assert len(job.outputs) == 1
        bench.worker_set.reap(worker)
        bench.come_up()
    ((failed, error),) = bench.failed
    assert failed is job
    assert isinstance(error, WorkerLost)
    assert (error.what, error.steps, error.attempts) == ("net", 7, 3)
    assert "net (a model of 7 steps): 3 worker processes were lost" in str(error)


def test_only_the_run_that_was_being_executed_counts_the_death() -> None:
    bench = _Bench(1)
    first, second = bench.run(bench.model()), bench.run(bench.model())
    bench.worker_set.reap(bench.owner(first) or 0)
    bench.come_up()
    assert (first.lost, second.lost) == (1, 0)
    assert list(bench.worker_set.workers[bench.owner(first) or 0].jobs) == [first.token, second.token]


def test_a_function_is_never_repeated() -> None:
    bench = _Bench(1)
    job = bench.call()
    bench.worker_set.reap(bench.owner(job) or 0)
    bench.come_up()
    assert [(failed, type(error)) for failed, error in bench.failed] == [(job, WorkerLost)]
    assert "not repeated" in str(bench.failed[0][1])


def test_a_function_shares_its_worker_with_nothing() -> None:
    bench = _Bench(1)
    job = bench.call()
    run, other = bench.run(bench.model()), bench.call()
    assert (bench.owner(run), bench.owner(other)) == (None, None)
    bench.worker_set.finish(bench.owner(job) or 0, job.token)
    bench.worker_set.dispatch()
    # The run was waiting, so it goes first; then the function; neither starves the other.
    assert bench.owner(run) is not None
    late = bench.run(bench.model())
    assert bench.owner(late) is None
    bench.worker_set.finish(bench.owner(run) or 0, run.token)
    bench.worker_set.dispatch()
    assert bench.owner(other) is not None
    assert bench.owner(late) is None


def test_a_run_waits_for_memory_while_others_run_and_fails_when_nothing_could_free_any() -> None:
    bench = _Bench(2, arena=100_000)
    model = bench.model(outputs=60_000)
    first, second = bench.run(model), bench.run(model)
    assert bench.owner(second) is None
    assert not bench.failed
    # The first ends, but its client keeps the outputs.
    bench.worker_set.finish(bench.owner(first) or 0, first.token)
    bench.leases.transfer(first.outputs, first.holder, "client")
    bench.worker_set.dispatch()
    ((failed, error),) = bench.failed
    assert failed is second
    assert isinstance(error, ArenaFull)
    assert error.arena == 100_000


def test_a_pool_whose_workers_die_at_birth_gives_up_instead_of_starting_them_for_ever() -> None:
    bench = _Bench(1)
    job = bench.run(bench.model())
    bench.worker_set.reap(bench.owner(job) or 0)
    for _ in range(FAILED_STARTS_LIMIT):
        (spawn,) = [step for step in bench.taken() if isinstance(step, Spawn)]
        assert not bench.failed
        bench.worker_set.reap(spawn.peer)
        bench.worker_set.dispatch()
    assert not [step for step in bench.taken() if isinstance(step, Spawn)]
    assert [type(error) for _, error in bench.failed] == [WorkerLost]
    late = bench.run(bench.model())
    assert bench.failed[-1][0] is late


def test_a_pool_that_has_given_up_tries_again_after_a_while() -> None:
    bench = _Bench(1)
    bench.worker_set.reap(next(iter(bench.worker_set.workers)))
    for _ in range(FAILED_STARTS_LIMIT):
        (spawn,) = [step for step in bench.taken() if isinstance(step, Spawn)]
        bench.worker_set.reap(spawn.peer)
    bench.worker_set.tick(100.0)
    bench.worker_set.tick(100.0 + BACK_OFF_S)
    bench.come_up()
    assert bench.owner(bench.run(bench.model())) is not None
    assert not bench.failed


def test_each_piece_of_work_has_its_own_limit_and_a_function_has_none() -> None:
    bench = _Bench(3)
    run = bench.run(bench.model())
    probe = Job(Kind.PROBE, next(bench.numbers), "engine opencl", engine="opencl")
    bench.worker_set.submit(probe)
    bench.worker_set.dispatch()
    function = bench.call()
    limits = {item.process: item.limit_s for item in bench.worker_set.at_work()}
    assert limits == {bench.owner(run): 60.0, bench.owner(probe): 30.0}
    assert bench.owner(function) not in limits
    bench.worker_set.reap(bench.owner(function) or 0)
    assert sorted(item.limit_s for item in bench.worker_set.at_work()) == [30.0, 30.0, 60.0]  # a new worker comes up


def test_a_run_that_takes_too_long_again_and_again_is_an_error_that_names_the_setting() -> None:
    bench = _Bench(1)
    job = bench.run(bench.model())
    for _ in range(3):
        assert not bench.failed
        (item,) = bench.worker_set.at_work()
        bench.worker_set.give_up_on(item)
        bench.worker_set.give_up_on(item)  # it has not died yet
        (kill,) = [step for step in bench.taken() if isinstance(step, Kill)]
        assert kill.peer == bench.owner(job)
        assert kill.reason == "net took longer than 60 s"
        bench.worker_set.reap(kill.peer)
        bench.come_up()
    ((failed, error),) = bench.failed
    assert failed is job
    assert isinstance(error, WorkerLost)
    assert "3 of them were killed because it took longer than 60 s (the setting run_timeout_s)" in str(error)
