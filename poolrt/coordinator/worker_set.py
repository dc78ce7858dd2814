"""The worker set: the workers, the jobs that each has in flight, and the jobs that wait for one.

Guarantees: a run is answered exactly once. The output slots of a lost worker are released only after its process has
exited, and the run is repeated into fresh ones. Only the run that the worker was executing counts the loss; those
queued behind it do not. A function is never repeated, because it may have had effects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from poolrt.errors import ArenaFull, PoolError, WorkerLoss
from poolrt.memory.arena import ArenaExhausted
from poolrt.workers.ipc.protocol import Kind

from .call_rings import CallRings, function_lost
from .client_order import ClientOrder
from .failed_starts import FailedStarts
from .functions import Functions
from .instructions import HangUp, Instruction, Kill, Role, Send, Spawn
from .jobs import Job, Model
from .leases import Leases
from .placement import RUNS_IN_FLIGHT, avoid_held_up, choose_for_function, choose_for_run, reserve_for_function
from .rings import Rings
from .watchdog import Limits, UnderWay
from .worker import Worker

#: Starts that may fail in a row; then the pool backs off instead of starting processes for ever.
FAILED_STARTS_LIMIT: Final = 3
#: Seconds after which a pool that backs off starts workers again, because a shortage of memory may have passed. They double
#: with each further failure, up to the second number.
BACK_OFF_S: Final = (1.0, 30.0)
#: Seconds that a worker has for the rest of a run whose caller waits no longer; then it is replaced.
GIVEN_UP_S: Final = 2.0
#: Runs that may overtake one that waits for memory. Then no run starts before it, so it gets memory or an error.
OVERTAKEN_LIMIT: Final = 64


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
        process: int = 0,
    ) -> None:
        self.size = size
        self.retries = retries
        self.limits = limits
        self.workers: dict[int, Worker] = {}
        self.runs_waiting: deque[Job] = deque()
        #: Runs that found no memory for their outputs.
        self.runs_lacking: deque[Job] = deque()
        self.functions_waiting: deque[Job] = deque()
        self.order = ClientOrder()
        #: Functions that a worker calls before a new one replaces it; 0: as many as come.
        self.max_tasks_per_child = 0
        #: Workers that have exited by themselves or were killed, in all.
        self.lost = 0
        self._leases = leases
        self._numbers = numbers
        self._out = out
        self._fail = fail
        #: The coordinator's process, whose open files workers map.
        self._process = process
        self._failed_starts = FailedStarts(FAILED_STARTS_LIMIT)
        self._backing_off = False
        self._backing_off_since = 0.0
        #: `Leases.freed` when a run last found no memory.
        self._freed_before = 0
        self.functions = Functions(numbers, self.workers, out)
        self.rings = Rings(self.workers, numbers, out, self._prepare_model, self.order.clients)
        self.calls = CallRings(self.workers, numbers, self.functions, leases, out)

    @property
    def waiting(self) -> int:
        """The number of jobs that no worker has yet."""
        return len(self.runs_waiting) + len(self.runs_lacking) + len(self.functions_waiting)

    def spawn_missing(self) -> None:
        """Spawn as many workers as are missing."""
        while len(self.workers) < self.size and not self._backing_off:
            number = next(self._numbers)
            self.workers[number] = Worker(number, self._failed_starts.total)
            self._out.append(Spawn(number, Role.WORKER))

    def submit(self, job: Job) -> None:
        """Queue a job; `dispatch` gives it to a worker or fails it."""
        if job.model is not None:
            job.model.users += 1
            job.priority = job.model.priority if job.kind is Kind.EXECUTE else 0
        self.order.put(self.functions_waiting if job.kind is Kind.APPLY else self.runs_waiting, job)

    def mark_ready(self, number: int, process: int) -> None:
        """Note that a worker has started, and with it the reason to back off gone."""
        worker = self.workers[number]
        worker.ready, worker.process = True, process
        self._failed_starts.clear()
        self._backing_off = False
        self.rings.add_worker(worker)
        self.calls.add_worker(worker)
        self.spawn_missing()

    def finish(self, number: int, token: int) -> Job | None:
        """Return the job that a worker has finished or failed, None if the worker had no such job."""
        worker = self.workers[number]
        job = worker.jobs.pop(token, None)
        if job is None:
            return None
        if job.kind is Kind.APPLY:
            worker.applying = False
            worker.calls += 1
            if worker.calls == self.max_tasks_per_child:
                worker.retired = worker.doomed = True
                self._out.append(HangUp(number, "idle"))
        worker.runs += job.kind in (Kind.EXECUTE, Kind.APPLY)
        if not worker.jobs and worker.gate is not None and worker.gate.open():
            self._out.append(Send(number, [Kind.GO]))
        if job.model is not None:
            job.model.users -= 1
        return job

    def reap(self, number: int, ending: str = "") -> None:
        """Remove a worker that has exited: spawn another, and repeat or fail the jobs in flight.

        ``ending`` names the signal that ended it, for the error.
        """
        worker = self.workers.pop(number)
        self.lost += not worker.retired
        if worker.ready:
            self._backing_off = False  # its replacement may start
        elif self._failed_starts.count(worker.failed_starts, worker.doomed and not worker.overdue):
            self._backing_off = self._failed_starts.excess >= 0
        jobs = list(worker.jobs.values())
        if jobs and self.rings.find_busy(number) is None:
            jobs[0].lost += 1
            jobs[0].overdue += worker.overdue
            jobs[0].ending = describe_ending(ending, overdue=worker.overdue)
        self.rings.reap(number, ending, overdue=worker.overdue)
        self.calls.reap(number, describe_ending(ending, overdue=worker.overdue))
        for job in reversed(jobs):
            self._retry(job)
        self.spawn_missing()

    def at_work(self) -> Iterator[UnderWay]:
        """Yield what each worker works on. A user's function has no limit, because its purpose is unknown."""
        for worker in self.workers.values():
            if not worker.ready:
                yield UnderWay(worker.number, "start", self.limits.start_s)
                continue
            if worker.retired:
                yield UnderWay(worker.number, "exit", self.limits.start_s)
                continue
            # A worker that calls a function executes no run, whatever a client has written to its ring.
            ring = self.rings.find_busy(worker.number) if not (worker.calling or worker.applying) else None
            if ring is not None:
                yield UnderWay(
                    worker.number, self.rings.describe(ring), GIVEN_UP_S if ring.is_given_up else self.limits.run_s
                )
                continue
            job = next(iter(worker.jobs.values()), None)
            if job is not None and job.kind is not Kind.APPLY:
                # A probe waits for the start of a driver.
                limit = self.limits.start_s if job.kind is Kind.PROBE else self.limits.run_s
                if job.given_up:
                    limit = GIVEN_UP_S
                yield UnderWay(worker.number, job.token, limit)
            elif job is None and not worker.calling and (ring := self.rings.find_waiting(worker.number)) is not None:
                # It begins nothing: `Rings.tick` has asked it to look, so it is stopped.
                yield UnderWay(worker.number, ("waiting", ring.number, ring.progress), self.limits.run_s)

    def give_up_on(self, item: UnderWay) -> None:
        """Kill a worker that is overdue."""
        worker = self.workers[item.process]
        if worker.overdue:
            return  # it is being killed already
        worker.overdue = True
        job = next(iter(worker.jobs.values()), None)
        doing = job.label if job is not None else "its exit" if worker.retired else "its start"
        ring = self.rings.find_busy(worker.number)
        if ring is not None:
            doing = self.rings.describe(ring)[1]
        elif job is None and not worker.retired and worker.ready:
            doing = "the wait of a run in its ring"
        given_up = job is not None and job.given_up if ring is None else ring.is_given_up
        after = " after its caller's timeout" if given_up else ""
        self._out.append(Kill(worker.number, f"{doing} took longer than {item.limit_s:g} s{after}"))

    def tick(self, now: float) -> None:
        """Spawn workers again after backing off for a while; ``now`` is in seconds of a steady clock."""
        self.rings.tick()
        if self.waiting:
            self.dispatch()  # a worker may be held up no longer
        for worker in self.workers.values():
            # Runs are too short for a message at their begin.
            if worker.jobs:
                self._note_begin(next(iter(worker.jobs.values())))
        self.note_time(now)
        if not self._backing_off:
            return
        shortest, longest = BACK_OFF_S
        doubled = min(self._failed_starts.excess, 10)
        if now - self._backing_off_since >= min(longest, shortest * 2**doubled):
            self._backing_off, self._backing_off_since = False, now
            self.spawn_missing()

    def note_time(self, now: float) -> None:
        """Note the time, from which a back-off counts that begins before the next tick."""
        if not self._backing_off:
            self._backing_off_since = now

    @property
    def is_backing_off(self) -> bool:
        """Whether no worker is spawned for a while, because starts have failed."""
        return self._backing_off

    def withdraw(self, client: int) -> list[Job]:
        """Remove a client's queued jobs and return them. Its jobs in flight go on, and their answers are dropped."""
        withdrawn: list[Job] = []
        self.order.forget(client)
        for job in self._calls_of(client):
            job.left = True
        for queue in (self.runs_waiting, self.runs_lacking, self.functions_waiting):
            for job in [j for j in queue if j.client == client]:
                queue.remove(job)
                withdrawn.append(job)
                self._leases.end(job.holder)
                if job.model is not None:
                    job.model.users -= 1
        return withdrawn

    def calls_for(self, client: int) -> bool:
        """Return whether a worker calls a function for a client, by messages, and may use its slots."""
        return any(job.uses_slots for job in self._calls_of(client))

    def _calls_of(self, client: int) -> list[Job]:
        jobs = [job for worker in self.workers.values() for job in worker.jobs.values()]
        return [job for job in jobs if job.client == client and job.kind is Kind.APPLY]

    def withdraw_one(self, client: int, request: int) -> Job | None:
        """Remove the queued job of a client's request and return it; None if it has begun or ended."""
        for queue in (self.functions_waiting, self.runs_waiting, self.runs_lacking):
            for job in queue:
                if job.request == request and job.client == client and not job.begun:
                    queue.remove(job)
                    self._leases.end(job.holder)
                    if job.model is not None:
                        job.model.users -= 1
                    return job
        return None

    def give_up(self, client: int, request: int) -> Job | None:
        """Remove and return the queued job of a request whose caller waits no longer; mark one that has begun."""
        job = self.withdraw_one(client, request)
        if job is None:
            for worker in self.workers.values():
                for begun in worker.jobs.values():
                    begun.given_up |= begun.client == client and begun.request == request and begun.kind is Kind.EXECUTE
        return job

    def dispatch(self) -> None:
        """Give waiting jobs to the workers that have room."""
        if self._backing_off and not any(w.ready for w in self.workers.values()):
            self._fail_waiting()
        while True:
            self._dispatch_functions()
            self._dispatch_runs()
            self._dispatch_functions()
            if not self._want_workers():
                return

    def find_active(self) -> list[int]:
        """Return the clients that have used their rings since the last call."""
        return self.rings.find_active() + self.calls.find_active()

    def drop_model(self, model: Model) -> None:
        """Send DROP to the workers that have a model."""
        self.rings.drop_model(model)
        for worker in self.workers.values():
            if model.number in worker.models:
                worker.models.discard(model.number)
                worker.mapped.discard(model.number)
                self._out.append(Send(worker.number, [Kind.DROP, model.number]))

    def _want_workers(self) -> bool:
        """Close the gates of workers that call functions while jobs wait, and open those closed in vain.

        Return whether a call has ended meanwhile, so that a job may have a worker now.
        """
        waiting = bool(self.waiting)
        free = False
        for worker in self.workers.values():
            gate = worker.gate
            if gate is None or worker.jobs or not worker.ready or worker.doomed:
                continue
            if waiting and gate.is_calling:
                free |= gate.close()
            elif gate.is_closed and gate.open():
                self._out.append(Send(worker.number, [Kind.GO]))
        return free

    def _dispatch_runs(self) -> None:
        """Give runs to workers in order, but let others overtake those that wait for memory."""
        workers = self.workers.values()
        reserved = reserve_for_function(workers) if self.functions_waiting else None
        held_up = self.rings.find_held_up() if self.runs_waiting or self.runs_lacking else None
        avoided = avoid_held_up(workers, held_up, reserved) if held_up else ()
        while (queue := self._next_queue()) is not None:
            job = queue[0]
            ready = (
                1 if job.client in self.order.clients else RUNS_IN_FLIGHT
            )  # a run that a worker has cannot be overtaken
            chosen = choose_for_run(workers, job.model.number if job.model else 0, reserved, avoided, ready)
            if chosen is None:
                return
            if not self.workers[chosen.number].reserve():
                continue
            if job.kind is Kind.EXECUTE and job.model is not None:
                try:
                    job.outputs = self._leases.take(job.model.output_sizes, job.holder)
                except ArenaExhausted as error:
                    self._freed_before = self._leases.freed
                    queue.popleft()
                    if not any(other.uses_arena for w in workers for other in w.jobs.values()):
                        job.model.users -= 1
                        self._fail(job, arena_full(job.label, error))
                    elif queue is self.runs_waiting:
                        self.order.put(self.runs_lacking, job)
                    else:
                        self.runs_lacking.appendleft(job)
                        if not self.runs_waiting or job.passed >= OVERTAKEN_LIMIT:
                            return
                    continue
            queue.popleft()
            if queue is self.runs_waiting and self.runs_lacking:
                self.runs_lacking[0].passed += 1
            self._give(self.workers[chosen.number], job)

    def _next_queue(self) -> deque[Job] | None:
        """Return the queue whose first run is tried next: of runs that lack memory, if some was freed or they waited enough."""
        if self.runs_lacking and (
            not self.runs_waiting
            or self._leases.freed != self._freed_before
            or self.runs_lacking[0].passed >= OVERTAKEN_LIMIT
        ):
            return self.runs_lacking
        return self.runs_waiting or None

    def _dispatch_functions(self) -> None:
        while self.functions_waiting:
            function = self.functions_waiting[0].function
            number = function.number if function else 0
            chosen = choose_for_function(self.workers.values(), number, bool(self.runs_waiting))
            if chosen is None:
                return
            if self.workers[chosen.number].reserve():
                self._give(self.workers[chosen.number], self.functions_waiting.popleft())

    def _give(self, worker: Worker, job: Job) -> None:
        worker.jobs[job.token] = job
        worker.applying = worker.applied = job.kind is Kind.APPLY
        model = job.model
        if model is not None:
            self._send_model(worker, model)
        number = model.number if model else 0
        message: list[object]
        if job.kind is Kind.EXECUTE:
            if model is not None:
                self._send_files(worker, model)
            message = [Kind.EXECUTE, job.token, number, job.inputs, job.outputs]
        elif job.kind is Kind.KEEP and model is not None:
            message = [Kind.KEEP, job.token, number, job.constant, job.inputs[0], model.names[job.constant]]
        elif job.kind is Kind.REORDER:
            message = [Kind.REORDER, job.token, number, job.constant, job.inputs[0], job.outputs[0]]
        elif job.kind is Kind.APPLY:
            self.functions.prepare(worker, job.client, job.function)
            message = [Kind.APPLY, job.token, job.client, job.function.number if job.function else 0, job.payload]
        else:
            message = [Kind.PROBE, job.token, job.engine]
        self._out.append(Send(worker.number, message))
        if job.kind is Kind.APPLY:
            self._note_begin(job)

    def _send_model(self, worker: Worker, model: Model) -> None:
        """Send a worker a model that it does not have."""
        if model.number not in worker.models:
            worker.models.add(model.number)
            self._out.append(
                Send(worker.number, [Kind.MODEL, model.number, model.plan, model.entries, model.constants])
            )

    def _send_files(self, worker: Worker, model: Model) -> None:
        """Send a worker the files of a model's constants, which runs need."""
        number = model.number
        if model.files and number not in worker.mapped:
            worker.mapped.add(number)
            files = [[index, descriptor, model.names[index]] for index, descriptor in model.files.items()]
            self._out.append(Send(worker.number, [Kind.FILES, number, self._process, files]))

    def _prepare_model(self, worker: Worker, model: Model) -> None:
        """Send a worker all that runs of a model need."""
        self._send_model(worker, model)
        self._send_files(worker, model)

    def _note_begin(self, job: Job) -> None:
        """Let the client know that a worker executes its run or function."""
        if job.client and not job.begun:
            job.begun = True
            self._out.append(Send(job.client, [Kind.BEGUN, job.request]))

    def _retry(self, job: Job) -> None:
        if job.kind is Kind.EXECUTE:
            for offset in job.outputs:
                self._leases.release(offset, job.holder)
            job.outputs = []
        if (job.kind is Kind.APPLY and job.lost) or self.has_failed(job):
            if job.model is not None:
                job.model.users -= 1
            self._fail(job, self.worker_lost(job))
        else:
            (self.functions_waiting if job.kind is Kind.APPLY else self.runs_waiting).appendleft(job)

    def _fail_waiting(self) -> None:
        for queue in (self.runs_waiting, self.runs_lacking, self.functions_waiting):
            while queue:
                job = queue.popleft()
                if job.model is not None:
                    job.model.users -= 1
                self._fail(job, self._never_started(job))

    def _never_started(self, job: Job) -> WorkerLoss:
        text = (
            f"{job.label}: {self._failed_starts.in_a_row} times in a row, worker processes exited while they started, or took "
            f"longer than {self.limits.start_s:g} s (the setting start_timeout_s); their lines on standard error say why"
        )
        return WorkerLoss(text, job.label, 0, self._failed_starts.in_a_row)

    def has_failed(self, job: Job) -> bool:
        """Return whether a job is not to be repeated: it has lost too many workers, or its caller waits no longer."""
        return job.lost > self.retries or job.given_up

    def worker_lost(self, job: Job) -> WorkerLoss:
        """Return the error of a job that has."""
        steps = job.model.steps if job.model else 0
        if job.kind is Kind.APPLY:
            return function_lost(job.ending)
        of = f" (a model of {steps} steps)" if steps else ""
        text = f"{job.label}{of}: {job.lost} worker processes were lost one after the other while they executed it"
        text += job.ending
        if job.model is not None and job.model.calls and job.kind is Kind.EXECUTE:
            text += f"; it calls kernels of its user: {', '.join(f'node {name!r}' for name in job.model.calls)}"
        if job.overdue:
            name = "start_timeout_s" if job.kind is Kind.PROBE else "run_timeout_s"
            limit = self.limits.start_s if job.kind is Kind.PROBE else self.limits.run_s
            text += f"; {job.overdue} of them were killed because it took longer than {limit:g} s (the setting {name})"
        return WorkerLoss(text, job.label, steps, job.lost)


def describe_ending(ending: str, *, overdue: bool) -> str:
    """Return the clause of an error that names the signal by which a worker has ended, if it was not killed here."""
    return f"; the last one was ended by {ending}" if ending and not overdue else ""


def arena_full(label: str, error: ArenaExhausted) -> ArenaFull:
    """Return the client's error for shared memory that is too small."""
    return ArenaFull(f"{label}: {error}", error.needed, error.free, error.nbytes)
