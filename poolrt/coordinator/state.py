"""The coordinator's state machine: events in, instructions out. No I/O, no clock, no thread.

Each public method handles an event and returns the instructions that follow from it, in order. So every promise about
retries, leases and fairness can be tested with any order of events, without a process or a socket.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.cachestore.lru import Lru
from poolrt.errors import FunctionFailed, PoolError, PoolRefused, RunFailed, unfit_error
from poolrt.memory.arena import Allocator, ArenaExhausted
from poolrt.workers.ipc.bounded_decoding import Payload
from poolrt.workers.ipc.channel import MalformedMessage, Message
from poolrt.workers.ipc.protocol import NUMBERS_LIMIT, Kind

from .call_ring import CallRing
from .call_rings import CALL_KINDS
from .creations import Creations
from .instructions import (
    CloseFiles,
    CollectStatistics,
    HangUp,
    Instruction,
    Kill,
    LookedUp,
    LoweredGraph,
    PrimitiveToLoad,
    Send,
    Slow,
)
from .jobs import Job, Model
from .leases import Leases, NotHeld
from .loads import Loads
from .result_rooms import SLOTS_LIMIT
from .rings import RING_KINDS
from .statistics import statistics
from .watchdog import Limits, Watchdog
from .worker_set import WorkerSet, arena_full, describe_ending

#: Runs, functions and requests for statistics that one client may have unanswered; poolrt's own stays far below.
CLIENT_LIMIT: Final = 4096
#: Bytes of entries that are kept beside those of loaded models.
ENTRY_BYTES: Final = 256 * 1024 * 1024
#: Bytes of functions and arguments that one client may have waiting or under way; poolrt's own stays below half of it.
PAYLOADS_BYTES: Final = 512 * 1024 * 1024


@dataclass(slots=True, eq=False)
class Client:
    """One connected client: its loaded models, and how many of its requests are unanswered."""

    number: int
    models: dict[int, Model] = field(default_factory=dict)
    unanswered: int = 0
    #: Bytes of functions and arguments that have not ended.
    payload_bytes: int = 0


class State:
    """The state of a coordinator. ``numbers`` yields unused numbers and is shared with the loop."""

    def __init__(
        self,
        numbers: Iterator[int],
        arena_bytes: int,
        workers: int,
        creators: int,
        retries: int,
        capacity: int,
        functions: bool,
        limits: Limits,
        max_tasks_per_child: int = 0,
        process: int = 0,
        shares_constants: bool = False,
        writes_constants: bool = False,
    ) -> None:
        self.clients: dict[int, Client] = {}
        self.leases = Leases(Allocator(arena_bytes))
        self._out: list[Instruction] = []
        self._functions = functions
        self._numbers = numbers
        self._watchdog = Watchdog()
        self.worker_set = WorkerSet(
            workers, retries, limits, self.leases, numbers, self._out, self._job_failed, process
        )
        self.worker_set.max_tasks_per_child = max_tasks_per_child
        self.worker_set.rings.left = self.worker_set.calls.left = self._on_rings_left
        self.creations = Creations(creators, limits, numbers, self._out)
        # A second load of a graph asks the store for nothing.
        memory = Lru[str, bytes](capacity, ENTRY_BYTES, weigh=len)
        done, drop = self._model_ready, self._drop
        shared = shares_constants, writes_constants
        self.loads = Loads(
            self.worker_set, self.creations, memory, self.leases, numbers, self._out, done, drop, *shared
        )

    def start(self) -> list[Instruction]:
        """Spawn the workers."""
        self.worker_set.spawn_missing()
        return self._take_instructions()

    def on_client_connected(self, number: int) -> list[Instruction]:
        """Add a client that has sent HELLO."""
        self.clients[number] = Client(number)
        return self._take_instructions()

    def on_client_disconnected(self, number: int) -> list[Instruction]:
        """Remove a client and release all that it held; answers to its runs under way are dropped."""
        client = self.clients.pop(number, None)
        if client is not None:
            for job in self.worker_set.withdraw(number):
                self._release(job)
            self.loads.withdraw(number)
            may_be_written = self.worker_set.calls.withdraw(number)
            self.worker_set.functions.withdraw(number)
            may_be_written = self.worker_set.rings.withdraw(number) or may_be_written
            may_be_written = may_be_written or self.worker_set.calls_for(number)
            for model in client.models.values():
                self._drop(model)
            if may_be_written:
                self.leases.rename(("client", number), ("left", number))
            else:
                self.leases.end(("client", number))
            self.worker_set.dispatch()
        return self._take_instructions()

    def on_client_message(self, number: int, kind: Kind, message: Message) -> list[Instruction]:
        """Handle a valid message of a client. A message that violates the protocol closes this connection only."""
        client = self.clients.get(number)
        if client is None:
            return self._take_instructions()
        try:
            self._handle(client, kind, message)
        except (NotHeld, PoolRefused) as error:
            self._out.append(HangUp(number, str(error)))
        return self._take_instructions()

    def on_process_message(self, number: int, kind: Kind, message: Message) -> list[Instruction]:
        """Handle a valid message of a worker or creator."""
        try:
            if number in self.worker_set.workers:
                self._on_worker_message(number, kind, message)
            elif number in self.creations.creators:
                self.loads.on_creator_message(number, kind, message)
                self.loads.schedule()
                self.worker_set.dispatch()
        except MalformedMessage as error:
            self._out.append(Kill(number, str(error)))
        return self._take_instructions()

    def on_process_exited(self, number: int, ending: str = "") -> list[Instruction]:
        """Handle the exit of a process, which can write to no slot any more; ``ending`` is the signal that ended it, if any."""
        if number in self.worker_set.workers:
            self.worker_set.reap(number, ending)
            self.worker_set.dispatch()
        elif number in self.creations.creators:
            for creation, error in self.creations.reap(number, ending):
                for load, _ in creation.waiting:
                    self.loads.fail(load, error)
            self.loads.schedule()
        return self._take_instructions()

    def on_processes_doomed(self, numbers: list[int]) -> None:
        """Give nothing more to workers whose exit is certain, and do not take the exit of a process for its own failure."""
        for number in numbers:
            if (worker := self.worker_set.workers.get(number)) is not None:
                worker.doomed = True
            elif (creator := self.creations.creators.get(number)) is not None:
                creator.doomed = True

    def on_ring_failed(self, worker: int, ring: int) -> list[Instruction]:
        """Handle a ring that could not be made: runs go by messages."""
        self.worker_set.rings.end(worker, ring)
        return self._take_instructions()

    def on_ring_ends(self, primitive: PrimitiveToLoad, entry: bytes, kernels: frozenset[bytes]) -> list[Instruction]:
        """Take the compiled ends of rings from the store, or have them created if the entry is empty."""
        self.loads.take_ring_ends(primitive, entry, kernels)
        return self._take_instructions()

    def on_calls_failed(self, ring: CallRing) -> list[Instruction]:
        """Handle a ring of calls that could not be made: its client calls by messages."""
        self.worker_set.calls.end(ring.worker, ring.number)
        return self._take_instructions()

    def on_lowered(self, load: int, graph: LoweredGraph) -> list[Instruction]:
        """Continue a load whose graph has been lowered."""
        self.loads.lowered(load, graph)
        self.worker_set.dispatch()
        return self._take_instructions()

    def on_load_failed(self, load: int, error: PoolError) -> list[Instruction]:
        """Fail a load whose graph cannot be lowered or whose look-up failed."""
        self.loads.fail(load, error)
        return self._take_instructions()

    def on_looked_up(self, load: int, outcome: LookedUp) -> list[Instruction]:
        """Continue a load with the entries that the store has, each with its source."""
        self.loads.looked_up(load, outcome)
        self.worker_set.dispatch()
        return self._take_instructions()

    def on_constants_found(self, load: int, found: dict[int, int]) -> list[Instruction]:
        """Continue a load with the open files of some of its constants, by number; -1 where there is none."""
        self.loads.constants_found(load, found)
        self.worker_set.dispatch()
        return self._take_instructions()

    def on_tick(self, now: float) -> list[Instruction]:
        """Check idle times and limits; ``now`` is in seconds of a steady clock."""
        self.creations.tick(now)
        if self.creations.waiting:
            self.loads.schedule()
        self.worker_set.tick(now)
        for item in self._watchdog.check(now, [*self.worker_set.at_work(), *self.creations.at_work()]):
            (self.worker_set if item.process in self.worker_set.workers else self.creations).give_up_on(item)
        return self._take_instructions()

    def on_statistics(self, number: int, request: int, statistics: dict[str, Any]) -> list[Instruction]:
        """Send a client the statistics that it has asked for."""
        client = self.clients.get(number)
        if client is not None:
            client.unanswered -= 1
            self._out.append(Send(number, [Kind.STATUS, request, statistics]))
        return self._take_instructions()

    def trim(self, keep: int) -> list[tuple[int, int]]:
        """Return free slots, as offset and size, whose pages may be returned to the system, beyond ``keep`` bytes."""
        busy = any(w.jobs for w in self.worker_set.workers.values()) or self.loads.under_way
        return [] if busy else self.leases.allocator.trim(keep)

    def compact(self) -> None:
        """Return the memory of tables that have been much larger."""
        self.leases.compact()

    @property
    def has_payloads(self) -> bool:
        """Whether graphs or calls of clients are kept."""
        return bool(self.loads.under_way) or any(client.payload_bytes for client in self.clients.values())

    def statistics(self) -> dict[str, Any]:
        """Return the statistics that need no I/O."""
        return statistics(self)

    def _handle(self, client: Client, kind: Kind, message: Message) -> None:
        if kind is Kind.RUN or kind is Kind.RERUN:
            self._run(client, *message[1:])
        elif kind is Kind.RELEASE:
            self._release_slots(client, message[1])
        elif kind is Kind.ALLOCATE:
            self._allocate(client, *message[1:])
        elif kind is Kind.CALL:
            self._call(client, *message[1:])
        elif kind is Kind.LOAD:
            self.loads.start(client.number, *message[1:])
        elif kind is Kind.WRITTEN:
            self.loads.written(client.number, *message[1:])
        elif kind is Kind.CANCEL:
            if not self.loads.cancel(client.number, message[1]):
                self._out.append(Slow(client.number))
        elif kind is Kind.UNLOAD:
            model = client.models.pop(message[1], None)
            if model is not None:
                self._drop(model)
            else:
                self._out.append(Slow(client.number))
        elif kind in (Kind.FUNCTION, Kind.DISCARD, Kind.INITIALIZER, Kind.CALLS):
            self._keep_function(client, kind, message)
        elif kind is Kind.WITHDRAW:
            self._withdraw(client, *message[1:])
        elif kind is Kind.GIVE_UP:
            self.worker_set.rings.give_up(client.number, message[2], message[3])
            if (job := self.worker_set.give_up(client.number, message[1])) is not None:
                self._job_failed(job, PoolRefused("its caller waits no longer"))
        elif kind is Kind.HELD_UP:
            self.worker_set.rings.note_held_up(client.number, message[1])
        elif kind is Kind.PING:
            self._out.append(Send(client.number, [Kind.PONG]))
        elif kind is Kind.EXPLAIN:
            self._explain(client, *message[1:])
        elif kind is Kind.STATISTICS:
            self._count(client)
            self._out.append(CollectStatistics(client.number, message[1], statistics(self)))
        else:
            raise PoolRefused(f"clients must not send {kind.name}")
        self.worker_set.dispatch()

    def _run(
        self, client: Client, request: int, number: int, inputs: list[int], released: list[int], lost_ring: int = 0
    ) -> None:
        self._release_slots(client, released)
        model = client.models.get(number)
        if model is None:
            raise PoolRefused(f"cannot run model {number}: it is not loaded")
        if len(inputs) != len(model.input_sizes):
            raise PoolRefused(f"model {model.name} has {len(model.input_sizes)} inputs, got {len(inputs)}")
        holder = ("client", client.number)
        for offset, size in zip(inputs, model.input_sizes, strict=True):
            if not self.leases.holds(holder, offset, size):
                raise NotHeld(offset)
        self._count(client)
        job = Job(Kind.EXECUTE, next(self._numbers), model.name, client.number, request, model=model, inputs=inputs)
        if lost_ring:
            lost = self.worker_set.rings.take_lost(client.number, lost_ring)
            if lost is None:
                raise PoolRefused(f"ring {lost_ring} was not lost, or is named for the second time")
            job.lost, job.overdue, job.ending = 1, lost.overdue, describe_ending(lost.ending, overdue=lost.overdue)
            if self.worker_set.has_failed(job):
                self._answer(job, [Kind.FAILED, request, self.worker_set.worker_lost(job).to_wire()])
                return
        for offset in inputs:
            self.leases.share(offset, job.holder)
        self.worker_set.submit(job)

    def _explain(self, client: Client, request: int, number: int) -> None:
        model = client.models.get(number)
        if model is None:
            raise PoolRefused(f"cannot explain model {number}: it is not loaded")
        self._out.append(Send(client.number, [Kind.EXPLAINED, request, model.plan, model.descriptors]))

    def _keep_function(self, client: Client, kind: Kind, message: Message) -> None:
        """Keep or discard a function. Without functions, calls are refused, not what comes before them."""
        functions = self.worker_set.functions
        if not self._functions:
            return
        if kind is Kind.CALLS:
            if not self.worker_set.max_tasks_per_child:
                self.worker_set.calls.grant(client.number, message[1])
        elif kind is Kind.FUNCTION:
            functions.add(client.number, *message[1:])
        elif kind is Kind.DISCARD:
            self.worker_set.calls.discard(client.number, message[1])
            functions.discard(client.number, message[1])
        else:
            functions.set_initializer(client.number, *message[1:])

    def _withdraw(self, client: Client, request: int, number: int) -> None:
        """Withdraw a run or call that has not begun; it is not answered then."""
        job = self.worker_set.withdraw_one(client.number, number)
        if job is not None:
            client.unanswered -= 1
            client.payload_bytes -= len(job.payload)
            self._release(job)
        else:
            self._out.append(Slow(client.number))
        self._out.append(Send(client.number, [Kind.WITHDRAWN, request, job is not None]))

    def _call(self, client: Client, request: int, number: int, priority: int, payload: bytes | Payload) -> None:
        if not self._functions:
            self._fail_request(client.number, request, PoolRefused("functions are turned off (the setting functions)"))
            return
        if client.payload_bytes and client.payload_bytes + len(payload) > PAYLOADS_BYTES:
            text = f"functions of one client that have not ended have more than {PAYLOADS_BYTES} bytes of arguments"
            self._fail_request(client.number, request, PoolRefused(f"{text}: call fewer at a time"))
            return
        function = self.worker_set.functions.find(client.number, number)
        self._count(client)
        client.payload_bytes += len(payload)
        job = Job(Kind.APPLY, next(self._numbers), "function", client.number, request, payload=payload)
        job.function, job.priority = function, priority
        if function is not None:
            function.users += 1
        self.worker_set.submit(job)

    def _allocate(self, client: Client, request: int, sizes: list[int]) -> None:
        if len(sizes) > NUMBERS_LIMIT:
            raise PoolRefused(f"a request for {len(sizes)} slots exceeds the limit of {NUMBERS_LIMIT}")
        held = self.leases.count(("client", client.number))
        if held + len(sizes) > SLOTS_LIMIT:
            text = f"a program cannot have more than {SLOTS_LIMIT} tensors in shared memory: {held} are held, {len(sizes)} wanted"
            self._fail_request(client.number, request, PoolRefused(f"{text}; drop or copy some"))
            return
        try:
            offsets = self.leases.take(sizes, ("client", client.number))
        except ArenaExhausted as error:
            self._fail_request(client.number, request, arena_full("shared memory for a tensor", error))
        else:
            self._out.append(Send(client.number, [Kind.ALLOCATED, request, offsets]))

    def _release_slots(self, client: Client, offsets: list[int]) -> None:
        for offset in offsets:
            self.leases.release(offset, ("client", client.number))

    def _count(self, client: Client) -> None:
        if client.unanswered >= CLIENT_LIMIT:
            raise PoolRefused(f"more than {CLIENT_LIMIT} requests of one client are unanswered")
        client.unanswered += 1

    def _on_worker_message(self, number: int, kind: Kind, message: Message) -> None:
        if kind is Kind.READY:
            self.worker_set.mark_ready(number, message[1])
        elif kind in RING_KINDS:
            self.worker_set.rings.handle(number, kind, message)
        elif kind in CALL_KINDS:
            self.worker_set.calls.handle(number, kind, message)
        elif kind is Kind.PRINTED:
            self._forward_text(number, *message[1:])
            return
        elif kind in (Kind.FINISHED, Kind.ANSWER, Kind.THREW, Kind.BROKEN, Kind.KERNEL_RAISED, Kind.UNFIT):
            job = self.worker_set.finish(number, message[1])
            if job is None:
                raise MalformedMessage(f"a worker answered job {message[1]}, which it was not given")
            if kind in (Kind.FINISHED, Kind.ANSWER):
                self.worker_set.workers[number].numba_imported = message[2]
            self._job_ended(job, kind, message)
        else:
            raise MalformedMessage(f"workers must not send {kind.name}")
        self.worker_set.dispatch()

    def _forward_text(self, number: int, token: int, stream: int, left_out: int, text: str) -> None:
        """Send what a function prints to the client that called it, if that is still connected."""
        job = self.worker_set.workers[number].jobs.get(token)
        if job is None or job.kind is not Kind.APPLY:
            raise MalformedMessage(f"a worker printed for job {token}, which is no function that it was given")
        if job.client in self.clients:
            self._out.append(Send(job.client, [Kind.TEXT, job.request, stream, left_out, text]))

    def _on_rings_left(self, client: int) -> None:
        workers = self.worker_set
        if not (workers.rings.has_rings(client) or workers.calls.has_rings(client) or workers.calls_for(client)):
            self.leases.end(("left", client))

    def _job_ended(self, job: Job, kind: Kind, message: Message) -> None:
        if kind in (Kind.BROKEN, Kind.KERNEL_RAISED):
            cause, text, *more = message[2:]
            self._job_failed(job, RunFailed(f"{job.label}: {cause}: {text}", cause, *more))
        elif kind is Kind.UNFIT:
            self._job_failed(job, unfit_error(*message[2:]))
        elif kind is Kind.THREW:
            self._answer(job, [Kind.RAISED, job.request, message[2], message[3]])
        elif job.kind is Kind.EXECUTE:
            if job.client in self.clients:
                self.leases.transfer(job.outputs, job.holder, ("client", job.client))
            self._answer(job, [Kind.DONE, job.request, job.outputs])
            if job.model is not None and job.model.wanted:
                self.worker_set.rings.count_run(job.model)
        elif job.kind is Kind.REORDER:
            self.loads.reordered(job)
        elif job.kind is Kind.KEEP:
            self.loads.kept(job)
        elif job.kind is Kind.PROBE:
            self.loads.probed(job, message[3])
        elif isinstance(message[3], bytes | Payload):
            self._answer(job, [Kind.RETURNED, job.request, message[3]])
        else:
            self._job_failed(job, FunctionFailed("a worker's answer is not a value", ""))
        self._release(job)

    def _job_failed(self, job: Job, error: PoolError) -> None:
        self.leases.end(job.holder)
        if job.load:
            self.loads.fail(job.load, error)
        else:
            self._answer(job, [Kind.FAILED, job.request, error.to_wire()])
        self._release(job)

    def _answer(self, job: Job, message: list[Any]) -> None:
        self.leases.end(job.holder)
        client = self.clients.get(job.client)
        if client is not None:
            client.unanswered -= 1
            client.payload_bytes -= len(job.payload)
            self._out.append(Send(client.number, message))

    def _fail_request(self, client: int, request: int, error: PoolError) -> None:
        self._out.append(Send(client, [Kind.FAILED, request, error.to_wire()]))

    def _model_ready(self, model: Model) -> None:
        self.clients[model.client].models[model.number] = model
        self.worker_set.order.note_model(model)

    def _drop(self, model: Model) -> None:
        model.wanted = False
        self._forget_if_unused(model)

    def _release(self, job: Job) -> None:
        """Release what a job needs that has ended or was withdrawn."""
        if job.function is not None:
            self.worker_set.functions.release(job.function)
            job.function = None
        if job.left:
            self._on_rings_left(job.client)
        self._forget_if_unused(job.model)

    def _forget_if_unused(self, model: Model | None) -> None:
        if model is not None and not model.wanted and not model.users:
            self.worker_set.drop_model(model)
            self.leases.end(("model", model.number))
            if model.files:
                self._out.append(CloseFiles([*model.files.values()]))
                model.files.clear()

    def _take_instructions(self) -> list[Instruction]:
        out = self._out[:]
        self._out.clear()
        return out
