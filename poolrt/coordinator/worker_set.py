"""The worker set: the workers, the jobs that each has in flight, and the jobs that wait for one.

Guarantees: a run is answered exactly once. The output slots of a lost worker are released only after its process has
exited, and the run is repeated into fresh ones. Only the run that the worker was executing counts the loss; those
queued behind it do not. A function is never repeated, because it may have had effects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from poolrt.arena import ArenaExhausted
from poolrt.errors import ArenaFull, PoolError, WorkerLost
from poolrt.workers.ipc.protocol import Kind

from .instructions import Instruction, Kill, Role, Send, Spawn
from .jobs import Job, Model
from .leases import Leases
from .placement import choose_for_function, choose_for_run, reserve_for_function
from .watchdog import Limits, UnderWay

#: Workers that may fail to start in a row; then the pool backs off instead of starting processes for ever.
FAILED_STARTS_LIMIT: Final = 3
#: Seconds after which a pool that backs off starts workers again: a shortage of memory may have passed.
BACK_OFF_S: Final = 30.0


@dataclass(slots=True, eq=False)
class Worker:
    """One worker process. ``jobs`` are in flight, in the order of their execution."""

    number: int
    ready: bool = False
    process: int = 0
    numba_imported: bool = False
    runs: int = 0
    models: set[int] = field(default_factory=set)
    jobs: dict[int, Job] = field(default_factory=dict)
    applying: bool = False
    applied: bool = False
    overdue: bool = False

    @property
    def load(self) -> int:
        """The number of jobs in flight."""
        return len(self.jobs)


class WorkerSet:
    """Keeps ``size`` workers alive and busy. ``fail(job, error)`` is called for each job that fails here."""

    def __init__(
        self,
        size: int,
        retries: int,
        limits: Limits,
        leases: Leases,
        numbers: Iterator[int],
        out: list[Instruction],
        fail: Callable[[Job, PoolError], None],
    ) -> None:
        self.size = size
        self.retries = retries
        self.limits = limits
        self.workers: dict[int, Worker] = {}
        self.runs_waiting: deque[Job] = deque()
        self.functions_waiting: deque[Job] = deque()
        #: Workers that have exited, in all.
        self.lost = 0
        self._leases = leases
        self._numbers = numbers
        self._out = out
        self._fail = fail
        self._failed_starts = 0
        self._backing_off = False
        self._backing_off_since = 0.0

    def spawn_missing(self) -> None:
        """Spawn as many workers as are missing."""
        while len(self.workers) < self.size and not self._backing_off:
            number = next(self._numbers)
            self.workers[number] = Worker(number)
            self._out.append(Spawn(number, Role.WORKER))

    def submit(self, job: Job) -> None:
        """Queue a job; `dispatch` gives it to a worker or fails it."""
        if job.model is not None:
            job.model.users += 1
        (self.functions_waiting if job.kind is Kind.APPLY else self.runs_waiting).append(job)

    def mark_ready(self, number: int, process: int) -> None:
        """Note that a worker has started."""
        worker = self.workers[number]
        worker.ready, worker.process = True, process
        self._failed_starts = 0

    def finish(self, number: int, token: int) -> Job | None:
        """Return the job that a worker has finished or failed, None if the worker had no such job."""
        worker = self.workers[number]
        job = worker.jobs.pop(token, None)
        if job is None:
            return None
        if job.kind is Kind.APPLY:
            worker.applying = False
        worker.runs += job.kind in (Kind.EXECUTE, Kind.APPLY)
        if job.model is not None:
            job.model.users -= 1
        return job

    def reap(self, number: int) -> None:
        """Remove a worker that has exited: spawn another, and repeat or fail the jobs in flight."""
        worker = self.workers.pop(number)
        self.lost += 1
        if not worker.ready:
            self._failed_starts += 1
            self._backing_off = self._failed_starts >= FAILED_STARTS_LIMIT
        jobs = list(worker.jobs.values())
        if jobs:
            jobs[0].lost += 1
            jobs[0].overdue += worker.overdue
        for job in reversed(jobs):
            self._retry(job)
        self.spawn_missing()

    def at_work(self) -> Iterator[UnderWay]:
        """Yield what each worker works on. A user's function has no limit, because its purpose is unknown."""
        for worker in self.workers.values():
            if not worker.ready:
                yield UnderWay(worker.number, "start", self.limits.start_s)
                continue
            job = next(iter(worker.jobs.values()), None)
            if job is not None and job.kind is not Kind.APPLY:
                # A probe waits for the start of a driver.
                limit = self.limits.start_s if job.kind is Kind.PROBE else self.limits.run_s
                yield UnderWay(worker.number, job.token, limit)

    def give_up_on(self, item: UnderWay) -> None:
        """Kill a worker that is overdue."""
        worker = self.workers[item.process]
        if worker.overdue:
            return  # it is being killed already
        worker.overdue = True
        job = next(iter(worker.jobs.values()), None)
        doing = job.label if job is not None else "its start"
        self._out.append(Kill(worker.number, f"{doing} took longer than {item.limit_s:g} s"))

    def tick(self, now: float) -> None:
        """Spawn workers again after backing off for `BACK_OFF_S`; ``now`` is in seconds of a steady clock."""
        if not self._backing_off:
            self._backing_off_since = now
        elif now - self._backing_off_since >= BACK_OFF_S:
            self._backing_off = False
            self._failed_starts = 0
            self.spawn_missing()

    def withdraw(self, client: int) -> list[Job]:
        """Remove a client's queued jobs and return them. Its jobs in flight go on, and their answers are dropped."""
        withdrawn: list[Job] = []
        for queue in (self.runs_waiting, self.functions_waiting):
            for job in [j for j in queue if j.client == client]:
                queue.remove(job)
                withdrawn.append(job)
                self._leases.end(job.holder)
                if job.model is not None:
                    job.model.users -= 1
        return withdrawn

    def dispatch(self) -> None:
        """Give waiting jobs to the workers that have room."""
        workers = self.workers.values()
        if self._backing_off and not any(w.ready for w in workers):
            self._fail_waiting()
        self._dispatch_functions()
        reserved = reserve_for_function(workers) if self.functions_waiting else None
        while self.runs_waiting:
            job = self.runs_waiting[0]
            chosen = choose_for_run(workers, job.model.number if job.model else 0, reserved)
            if chosen is None:
                break
            if job.kind is Kind.EXECUTE and job.model is not None:
                try:
                    job.outputs = self._leases.take(job.model.output_sizes, job.holder)
                except ArenaExhausted as error:
                    if any(w.jobs for w in workers):
                        break  # a job in flight may release memory
                    self.runs_waiting.popleft()
                    job.model.users -= 1
                    self._fail(job, arena_full(job.label, error))
                    continue
            self.runs_waiting.popleft()
            self._give(self.workers[chosen.number], job)
        self._dispatch_functions()

    def drop_model(self, model: Model) -> None:
        """Send DROP to the workers that have a model."""
        for worker in self.workers.values():
            if model.number in worker.models:
                worker.models.discard(model.number)
                self._out.append(Send(worker.number, [Kind.DROP, model.number]))

    def _dispatch_functions(self) -> None:
        while self.functions_waiting:
            chosen = choose_for_function(self.workers.values(), bool(self.runs_waiting))
            if chosen is None:
                return
            self._give(self.workers[chosen.number], self.functions_waiting.popleft())

    def _give(self, worker: Worker, job: Job) -> None:
        worker.jobs[job.token] = job
        worker.applying = worker.applied = job.kind is Kind.APPLY
        model = job.model
        if model is not None and model.number not in worker.models:
            worker.models.add(model.number)
            self._out.append(
                Send(worker.number, [Kind.MODEL, model.number, model.plan, model.entries, model.constants])
            )
        number = model.number if model else 0
        message: list[object]
        if job.kind is Kind.EXECUTE:
            message = [Kind.EXECUTE, job.token, number, job.inputs, job.outputs]
        elif job.kind is Kind.REORDER:
            message = [Kind.REORDER, job.token, number, job.constant, job.inputs[0], job.outputs[0]]
        elif job.kind is Kind.APPLY:
            message = [Kind.APPLY, job.token, job.payload]
        else:
            message = [Kind.PROBE, job.token, job.engine]
        self._out.append(Send(worker.number, message))

    def _retry(self, job: Job) -> None:
        if job.kind is Kind.EXECUTE:
            for offset in job.outputs:
                self._leases.release(offset, job.holder)
            job.outputs = []
        if (job.kind is Kind.APPLY and job.lost) or job.lost > self.retries:
            if job.model is not None:
                job.model.users -= 1
            self._fail(job, self._worker_lost(job))
        else:
            (self.functions_waiting if job.kind is Kind.APPLY else self.runs_waiting).appendleft(job)

    def _fail_waiting(self) -> None:
        for queue in (self.runs_waiting, self.functions_waiting):
            while queue:
                job = queue.popleft()
                if job.model is not None:
                    job.model.users -= 1
                self._fail(job, self._never_started(job))

    def _never_started(self, job: Job) -> WorkerLost:
        text = (
            f"{job.label}: {self._failed_starts} worker processes in a row exited while they started, or took longer than "
            f"{self.limits.start_s:g} s (the setting start_timeout_s); their lines on standard error say why"
        )
        return WorkerLost(text, job.label, 0, self._failed_starts)

    def _worker_lost(self, job: Job) -> WorkerLost:
        steps = job.model.steps if job.model else 0
        if job.kind is Kind.APPLY:
            text = f"{job.label}: the worker process that executed it was lost; functions are not repeated"
            return WorkerLost(text, job.label, steps, job.lost)
        of = f" (a model of {steps} steps)" if steps else ""
        text = f"{job.label}{of}: {job.lost} worker processes were lost one after the other while they executed it"
        if job.overdue:
            name = "start_timeout_s" if job.kind is Kind.PROBE else "run_timeout_s"
            limit = self.limits.start_s if job.kind is Kind.PROBE else self.limits.run_s
            text += f"; {job.overdue} of them were killed because it took longer than {limit:g} s (the setting {name})"
        return WorkerLost(text, job.label, steps, job.lost)


def arena_full(label: str, error: ArenaExhausted) -> ArenaFull:
    """Return the client's error for shared memory that is too small."""
    return ArenaFull(f"{label}: {error}", error.needed, error.free, error.nbytes)
