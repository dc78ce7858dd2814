"""The worker set: which worker gets what, what is repeated after a death and what is not, and when a pool gives up."""

from __future__ import annotations

import itertools

from poolrt.coordinator.failed_starts import LOST_FORK_SERVERS_LIMIT
from poolrt.coordinator.instructions import Instruction, Kill, Role, Send, Spawn
from poolrt.coordinator.jobs import Job, Model
from poolrt.coordinator.leases import Leases
from poolrt.coordinator.watchdog import Limits
from poolrt.coordinator.worker_set import BACK_OFF_S, FAILED_STARTS_LIMIT, OVERTAKEN_LIMIT, WorkerSet
from poolrt.errors import ArenaFull, PoolError, WorkerLoss
from poolrt.memory.arena import Allocator
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
        return Model(next(self.numbers), 0, "net", 7, b"", [], [], [], [outputs])

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
    assert isinstance(error, WorkerLoss)
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
    assert [(failed, type(error)) for failed, error in bench.failed] == [(job, WorkerLoss)]
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
    assert [type(error) for _, error in bench.failed] == [WorkerLoss]
    late = bench.run(bench.model())
    assert bench.failed[-1][0] is late


def test_a_pool_that_has_given_up_tries_again_after_a_while() -> None:
    bench = _Bench(1)
    bench.worker_set.reap(next(iter(bench.worker_set.workers)))
    for _ in range(FAILED_STARTS_LIMIT):
        (spawn,) = [step for step in bench.taken() if isinstance(step, Spawn)]
        bench.worker_set.reap(spawn.peer)
    bench.worker_set.tick(100.0)
    bench.worker_set.tick(100.0 + BACK_OFF_S[0])
    bench.come_up()
    assert bench.owner(bench.run(bench.model())) is not None
    assert not bench.failed


def test_a_pool_that_fails_again_waits_twice_as_long_each_time_up_to_a_limit() -> None:
    bench = _Bench(1)
    bench.worker_set.reap(next(iter(bench.worker_set.workers)))
    now, waited = 0.0, []
    for failure in range(FAILED_STARTS_LIMIT + 7):
        (spawn,) = [step for step in bench.taken() if isinstance(step, Spawn)]
        bench.worker_set.reap(spawn.peer)
        if failure + 1 >= FAILED_STARTS_LIMIT:
            since = now
            while not bench.out:
                now += 0.5
                bench.worker_set.tick(now)
            waited.append(now - since)
    assert waited == [1, 2, 4, 8, 16, 30, 30, 30]


def test_workers_that_exit_together_while_they_start_count_as_one_failed_start() -> None:
    # Given workers that exit together while they start, one time less often than the limit
    bench = _Bench(8)
    for worker in list(bench.worker_set.workers):
        bench.worker_set.reap(worker)
    for _ in range(FAILED_STARTS_LIMIT - 1):
        spawned = [step.peer for step in bench.taken() if isinstance(step, Spawn)]
        assert len(spawned) == 8
        for worker in spawned:
            bench.worker_set.reap(worker)
    # Then all are started again, and none of what waits is failed
    job = bench.run(bench.model())
    bench.come_up()
    assert sum(worker.ready for worker in bench.worker_set.workers.values()) == 8
    assert bench.owner(job) is not None
    assert not bench.failed


def test_fork_servers_that_exit_while_workers_start_do_not_count_as_workers_that_cannot_start() -> None:
    # Given a run that waits while one fork server after the other exits with the workers that it starts
    bench = _Bench(2)
    job = bench.run(bench.model())
    for worker in list(bench.worker_set.workers):
        bench.worker_set.reap(worker)
    for _ in range(LOST_FORK_SERVERS_LIMIT - 1):
        spawned = [step.peer for step in bench.taken() if isinstance(step, Spawn)]
        assert len(spawned) == 2
        for worker in spawned:
            bench.worker_set.workers[worker].doomed = True
        for worker in spawned:
            bench.worker_set.reap(worker)
        bench.worker_set.dispatch()
    # Then the next workers are started at once, and the run waits for them
    assert not bench.failed
    bench.come_up()
    assert bench.owner(job) is not None


def test_a_pool_backs_off_if_its_fork_servers_exit_again_and_again() -> None:
    bench = _Bench(1)
    job = bench.run(bench.model())
    bench.worker_set.reap(next(iter(bench.worker_set.workers)))
    for _ in range(LOST_FORK_SERVERS_LIMIT):
        (spawn,) = [step for step in bench.taken() if isinstance(step, Spawn)]
        bench.worker_set.workers[spawn.peer].doomed = True
        bench.worker_set.reap(spawn.peer)
    bench.worker_set.dispatch()
    assert [(failed, type(error)) for failed, error in bench.failed] == [(job, WorkerLoss)]
    bench.worker_set.tick(0.5 * BACK_OFF_S[0])
    assert not bench.out
    bench.worker_set.tick(BACK_OFF_S[0])
    assert len([step for step in bench.taken() if isinstance(step, Spawn)]) == 1


def test_a_start_that_was_ended_because_it_took_too_long_counts_though_its_fork_server_exited_too() -> None:
    bench = _Bench(1)
    bench.worker_set.reap(next(iter(bench.worker_set.workers)))
    for _ in range(FAILED_STARTS_LIMIT):
        (spawn,) = [step for step in bench.taken() if isinstance(step, Spawn)]
        worker = bench.worker_set.workers[spawn.peer]
        worker.doomed = worker.overdue = True
        bench.worker_set.reap(spawn.peer)
    assert not bench.out


def test_a_doomed_worker_gets_nothing_so_a_fork_servers_death_costs_a_run_one_loss() -> None:
    # Given a run at one of the workers whose fork server has exited
    bench = _Bench(4)
    job = bench.run(bench.model())
    for worker in bench.worker_set.workers.values():
        worker.doomed = True
    # When they exit one after the other, then the run waits for a worker that was spawned since
    owner = bench.owner(job)
    for number in sorted(bench.worker_set.workers, key=lambda n: n != owner):
        bench.worker_set.reap(number)
        bench.worker_set.dispatch()
        assert bench.owner(job) is None
    bench.come_up()
    assert bench.owner(job) is not None
    assert job.lost == 1


def test_a_worker_that_becomes_ready_ends_the_back_off() -> None:
    # Given a pool that backs off while two of its workers are still starting
    bench = _Bench(3)
    first, *others = list(bench.worker_set.workers)
    for worker in (first, *others):
        bench.worker_set.reap(worker)
    waiting = [step.peer for step in bench.taken() if isinstance(step, Spawn)]
    failing, *slow = waiting
    for _ in range(FAILED_STARTS_LIMIT):
        bench.worker_set.reap(failing)
        failing = next((step.peer for step in bench.taken() if isinstance(step, Spawn)), 0)
    assert not failing
    assert len(bench.worker_set.workers) == 2
    # When one of them is ready, then the missing worker is started at once
    bench.worker_set.mark_ready(slow[0], 1)
    assert len([step for step in bench.taken() if isinstance(step, Spawn)]) == 1


def test_a_worker_that_exits_while_the_pool_backs_off_is_replaced_at_once() -> None:
    bench = _Bench(2)
    first, last = bench.worker_set.workers
    bench.worker_set.reap(first)
    for _ in range(FAILED_STARTS_LIMIT):
        (spawn,) = [step for step in bench.taken() if isinstance(step, Spawn)]
        bench.worker_set.reap(spawn.peer)
    assert not [step for step in bench.taken() if isinstance(step, Spawn)]
    bench.worker_set.reap(last)
    assert len([step for step in bench.taken() if isinstance(step, Spawn)]) == 2


def test_a_function_does_not_delay_the_error_of_a_run_that_lacks_memory() -> None:
    bench = _Bench(2, arena=100_000)
    bench.leases.take([60_000], "client")
    function = bench.call()
    job = bench.run(bench.model(outputs=60_000))
    assert bench.owner(function) is not None
    ((failed, error),) = bench.failed
    assert failed is job
    assert isinstance(error, ArenaFull)


def test_a_run_that_lacks_memory_is_overtaken_by_others_but_not_for_ever() -> None:
    # Given a run under way, and one that needs its memory
    bench = _Bench(2, arena=100_000)
    first, large = bench.run(bench.model(outputs=60_000)), bench.run(bench.model(outputs=60_000))
    assert bench.owner(large) is None
    # When others come that need little, then they run, though the large one came before
    small = bench.model(outputs=100)
    for _ in range(OVERTAKEN_LIMIT):
        job = bench.run(small)
        owner = bench.owner(job)
        assert owner is not None
        bench.worker_set.finish(owner, job.token)
        bench.leases.transfer(job.outputs, job.holder, "client")
        bench.worker_set.dispatch()
    # But no more than a limit
    late = bench.run(small)
    assert bench.owner(late) is None
    # And when memory is free, then the large one runs first
    bench.worker_set.finish(bench.owner(first) or 0, first.token)
    bench.leases.end(first.holder)
    bench.worker_set.dispatch()
    assert bench.owner(large) is not None
    assert bench.owner(late) is not None
    assert not bench.failed


def test_runs_that_lack_memory_get_it_in_their_order_as_soon_as_it_is_free() -> None:
    bench = _Bench(1, arena=100_000)
    slots = bench.leases.take([60_000], "client")
    blocking = bench.run(bench.model(outputs=100))
    lacking = [bench.run(bench.model(outputs=60_000)) for _ in range(2)]
    assert bench.worker_set.waiting == 2
    bench.leases.release(slots[0], "client")
    bench.worker_set.dispatch()
    assert [bench.owner(job) is not None for job in lacking] == [True, False]
    # A client that leaves takes what waits with it
    assert bench.worker_set.withdraw(0) == lacking[1:]
    assert bench.owner(blocking) is not None
    assert bench.worker_set.waiting == 0


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
    assert isinstance(error, WorkerLoss)
    assert "3 of them were killed because it took longer than 60 s (the setting run_timeout_s)" in str(error)


def test_priorities_order_the_jobs_of_one_client_in_its_places() -> None:
    bench = _Bench(1)
    bench.call()
    jobs = []
    # Given jobs of two clients in turn, those of the first one with rising priorities
    for turn in range(6):
        for client, priority in ((1, turn), (2, 0)):
            job = Job(Kind.APPLY, next(bench.numbers), "function", client, turn, priority=priority)
            bench.worker_set.submit(job)
            jobs.append(job)
    # Then the first one's are in order of priority, and the other one's places are as before
    waiting = [*bench.worker_set.functions_waiting]
    assert waiting[1::2] == jobs[1::2]
    assert waiting[::2] == jobs[::2][::-1]


def test_the_oldest_job_is_overtaken_64_times_at_most() -> None:
    bench = _Bench(1)
    bench.call()
    for number in range(3 * OVERTAKEN_LIMIT):
        job = Job(Kind.APPLY, next(bench.numbers), "function", 1, number, priority=1 if number > 1 else 0)
        bench.worker_set.submit(job)
    requests = [job.request for job in bench.worker_set.functions_waiting]
    assert requests.index(0) == OVERTAKEN_LIMIT
    assert requests.index(1) == 2 * OVERTAKEN_LIMIT + 1
    urgent = [request for request in requests if request > 1]
    assert urgent == sorted(urgent)


def test_a_job_before_which_many_go_passes_those_of_a_middle_priority_too() -> None:
    bench = _Bench(1)
    bench.call()
    for number, priority in enumerate([0, *[1] * 100, 2]):
        bench.worker_set.submit(Job(Kind.APPLY, next(bench.numbers), "function", 1, number, priority=priority))
    requests = [job.request for job in bench.worker_set.functions_waiting]
    # The first one goes before the urgent one once it was overtaken enough, and the urgent one before all others
    assert sorted(requests) == [*range(102)]
    assert requests.index(101) == requests.index(0) + 1
