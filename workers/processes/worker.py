"""The worker process: realizes models on first use, runs them on memory of the arena, and applies functions of users.

It imports no compiler, no NumPy and no Redis: it runs machine code from entries. Only a user's function or an OpenCL
engine imports more.
"""

from __future__ import annotations

import _socket
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from poolrt.cachestore.deferred_dataclass import replace
from poolrt.cachestore.portable_error import describe_exception

from ..desc.codec import encode, unpack
from ..engines.engine import Engine
from ..engines.object_loader import ObjectError
from ..ipc.channel import Channel, ChannelClosed, MalformedMessage, Message
from ..ipc.protocol import IN_FILE, Kind, check_message
from ..memory.arena_view import ArenaView
from ..plans.execution_plan import ExecutionPlan
from ..plans.executor import PlanExecutor
from ..plans.realization import realize_all
from ..primitives.entry import MalformedEntry, parse_entry
from ..streams.attributes import StreamAttr
from ..streams.stream import Stream
from ..threadpools.interface import KernelFailed
from ..verbose.output import set_verbose
from .allocator import keep_freed_memory
from .call_memory import CallMemory
from .constant_store import ConstantStore
from .functions import Functions
from .prints import Prints
from .result_slots import ResultSlots
from .worker_calls import WorkerCalls
from .worker_rings import WorkerRings

if TYPE_CHECKING:
    from poolrt.cachestore.mapping import MappedBytes

    from ..plans.routine import Routine
    from ..threadpools.interface import ThreadpoolInterface


def main(sock: _socket.socket, descriptors: list[int], options: dict[str, Any]) -> None:
    """Serve the coordinator until it closes the connection."""
    arena = ArenaView(descriptors[0])
    arena.keep_from_forks()  # a user's function may fork a process that outlives this one
    # Functions get private mappings of it. A process that they fork must not keep all of the memory.
    os.set_inheritable(descriptors[0], False)
    os.register_at_fork(after_in_child=partial(os.close, descriptors[0]))
    set_verbose(options["verbose"])
    keep_freed_memory()
    constants = ConstantStore(options["constant_files"])
    channel = Channel(sock, accepts_fds=True)
    worker = _Worker(channel, arena, descriptors[0], int(options["threads"]), constants, int(options["spin_us"]))
    try:
        worker.work()
    except ChannelClosed:
        pass


class _Model:
    """A model as it was sent; its executor is made on first use."""

    __slots__ = ("constants", "entries", "executor", "files", "mapped", "plan", "reorders")

    def __init__(self, plan: bytes, entries: list[bytes], constants: list[int]) -> None:
        self.plan = plan
        self.entries = entries
        self.constants = constants
        self.executor: PlanExecutor | None = None
        #: What reorders constants while it is loaded, if files are written for some of them.
        self.reorders: PlanExecutor | None = None
        #: The process that has its constants in files open, and number, descriptor and name of each.
        self.files: tuple[int, list[Any]] = (0, [])
        self.mapped: list[MappedBytes] = []

    def close(self) -> None:
        """Release what the executors hold."""
        for executor in (self.executor, self.reorders):
            if executor is not None:
                executor.close()
        self.mapped.clear()


class _Worker:
    def __init__(
        self, channel: Channel, arena: ArenaView, arena_fd: int, threads: int, constants: ConstantStore, spin_us: int
    ) -> None:
        self._channel = channel
        self._constants = constants
        self._arena = arena
        self._threads = threads
        self._engine = Engine("cpu", kept=0)  # dropping a model unmaps its kernels
        self._pool: ThreadpoolInterface | None = None
        self._opencl_streams: dict[int, Stream] = {}
        self._models: dict[int, _Model] = {}
        self._prints = Prints(channel)
        self._slots = ResultSlots(channel, self._prints.send, arena)
        self._functions = Functions(CallMemory(self._slots, arena_fd))
        report = self._report_failure, self._report_broken
        self._rings = WorkerRings(channel, arena, self._run, *report, self._routine, spin_us)
        self._calls = WorkerCalls(channel, self._functions, self._prints, self._slots, self._rings.pause)
        self._rings.wait_beside(self._calls)
        self._actions: dict[Kind, Callable[[Message], Message | None]] = {
            Kind.EXECUTE: self._execute,
            Kind.REORDER: self._reorder,
            Kind.KEEP: self._keep,
            Kind.FILES: self._take_files,
            Kind.APPLY: self._apply,
            Kind.FUNCTION_BODY: self._functions.take,
            Kind.FORGET: self._forget,
            Kind.PREPARE: self._functions.prepare,
            Kind.LEAVE: self._functions.leave,
            Kind.PROBE: self._probe,
            Kind.MODEL: self._take_model,
            Kind.DROP: self._drop_model,
            Kind.ATTACH: self._attach,
            Kind.ALLOW: self._allow,
            Kind.RING_ENDS: self._take_ring_ends,
            Kind.DETACH: self._detach,
            Kind.GATE: lambda _: self._calls.take_gate(channel.take_fd()),
            Kind.ATTACH_CALLS: self._attach_calls,
            Kind.ADMIT: self._admit,
            Kind.DETACH_CALLS: self._detach_calls,
            Kind.GO: lambda _: self._calls.take_turn(),
            Kind.LOOK: lambda _: None,
        }

    def work(self) -> None:
        channel = self._channel
        channel.send([Kind.READY, os.getpid(), len(os.listdir("/proc/self/task"))])
        rings, calls = self._rings, self._calls
        while True:
            alone = not rings and not calls
            message = self._slots.take_deferred()
            if message is None and (alone or rings.wait()):
                message = channel.receive(block=alone)
            if message is not None:
                answer = self._answer(check_message(message), message)
                if answer is not None:
                    self._prints.send(answer)
            rings.serve()
            calls.serve()

    def _answer(self, kind: Kind, message: Message) -> Message | None:
        action = self._actions.get(kind)
        if action is None:
            raise ValueError(f"a worker does not accept {kind.name}")
        try:
            return action(message)
        except Exception as error:  # noqa: BLE001 - the error is the answer to the coordinator
            described = describe_exception(error)
            if isinstance(error, KernelFailed) and error.raised is not None:
                return [Kind.KERNEL_RAISED, message[1], *described, error.raised.text()]
            return [Kind.BROKEN, message[1], *described]

    def _execute(self, message: Message) -> Message:
        _, token, number, inputs, outputs = message
        base = self._arena.address
        self._run(number, [base + offset for offset in inputs], [base + offset for offset in outputs])
        return [Kind.FINISHED, token, "numba" in sys.modules]

    def _run(self, number: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        model = self._models[number]
        executor = model.executor or self._realize(model)
        executor.run(inputs, outputs)

    def _routine(self, number: int) -> Routine | None:
        """Return a model's plan for a compiled loop; None if there is none, or before the first run."""
        model = self._models.get(number)
        return model.executor.routine if model is not None and model.executor is not None else None

    def _take_ring_ends(self, message: Message) -> None:
        """Serve rings with the compiled loop; without it if this process cannot have it."""
        try:
            self._rings.take_loop(self._engine.cpu.realize(parse_entry(message[1]).binaries[0]))
        except (MalformedEntry, ObjectError, OSError, IndexError):
            pass

    def _attach(self, message: Message) -> Message | None:
        """Serve a ring, unless this process can have no more descriptors: then its client sends runs as messages."""
        number = message[1]
        try:
            self._rings.attach(number, self._channel.take_fd(), self._channel.take_fd())
        except (MalformedMessage, OSError):
            return [Kind.DETACHED, number]
        return None

    def _allow(self, message: Message) -> Message:
        self._rings.allow(*message[1:])
        return [Kind.ALLOWED, *message[1:3]]

    def _detach(self, message: Message) -> Message:
        self._rings.detach(message[1])
        return [Kind.DETACHED, message[1]]

    def _attach_calls(self, message: Message) -> Message | None:
        """Serve a ring of calls, unless this process can have no more descriptors: then its client calls by messages."""
        try:
            self._calls.attach(message[1], message[2], self._channel.take_fd(), self._channel.take_fd())
        except (MalformedMessage, OSError):
            return [Kind.DETACHED_CALLS, message[1]]
        return None

    def _admit(self, message: Message) -> Message:
        self._calls.admit(*message[1:])
        return [Kind.ADMITTED, *message[1:3]]

    def _detach_calls(self, message: Message) -> Message:
        self._calls.detach(message[1])
        return [Kind.DETACHED_CALLS, message[1]]

    def _forget(self, message: Message) -> None:
        self._calls.forget(message[1])
        self._functions.forget(message)

    def _report_failure(self, ring: int, sequence: int, error: Exception) -> None:
        raised = error.raised.text() if isinstance(error, KernelFailed) and error.raised is not None else ""
        self._prints.send([Kind.RING_RAISED, ring, sequence, *describe_exception(error), raised])

    def _report_broken(self, ring: int, reason: str) -> None:
        self._prints.send([Kind.RING_BROKEN, ring, reason])

    def _reorder(self, message: Message) -> Message:
        """Write a constant into its slot; one whose layout does not change was to be kept in a file."""
        _, token, number, constant, source, destination = message
        executor = self._reorders(self._models[number])
        planned, base = executor.plan.constants[constant], self._arena.address
        if planned.reorder is None:
            self._arena.copy(source, destination, planned.nbytes)
        else:
            executor.reorder_constant(constant, base + source, base + destination)
        return [Kind.FINISHED, token, "numba" in sys.modules]

    def _keep(self, message: Message) -> Message:
        """Write a constant into its file, unless that is there; the coordinator looks for it afterwards."""
        _, token, number, constant, source, name = message
        executor = self._reorders(self._models[number])
        planned = executor.plan.constants[constant]

        def make() -> memoryview:
            if planned.reorder is None:
                return memoryview(self._arena.buffer(source, planned.nbytes)).cast("B")
            room = self._constants.room(planned.nbytes)
            executor.reorder_constant(constant, self._arena.address + source, room.address)
            return room.view

        self._constants.keep(name, planned.nbytes, make)
        return [Kind.FINISHED, token, "numba" in sys.modules]

    def _take_model(self, message: Message) -> None:
        _, number, plan, entries, constants = message
        self._models[number] = _Model(plan, entries, constants)
        self._rings.note_change()

    def _take_files(self, message: Message) -> None:
        """Note the files of a model's constants; the first run maps them, since errors belong to runs."""
        self._constants.release()
        self._models[message[1]].files = message[2], message[3]

    def _drop_model(self, message: Message) -> None:
        self._rings.forbid(message[1])
        model = self._models.pop(message[1], None)
        if model is not None:
            model.close()

    def _realize(self, model: _Model) -> PlanExecutor:
        plan = unpack(ExecutionPlan, model.plan)
        addresses = [self._arena.address + offset for offset in model.constants]
        if IN_FILE in model.constants:
            process, files = model.files
            for number, descriptor, name in files:
                mapped = self._constants.map(process, descriptor, name, plan.constants[number].nbytes)
                model.mapped.append(mapped)
                addresses[number] = mapped.address
        streams = [self._stream(name, plan, model.entries) for name in plan.engines]
        primitives = realize_all(plan, model.entries, [stream.engine for stream in streams])
        model.executor = PlanExecutor(plan, primitives, streams, addresses)
        if model.reorders is not None:
            model.reorders.close()
            model.reorders = None
        return model.executor

    def _reorders(self, model: _Model) -> PlanExecutor:
        """Return what reorders constants of a model: its executor, or one without steps while files are missing."""
        if model.executor is not None or IN_FILE not in model.constants:
            return model.executor or self._realize(model)
        if model.reorders is None:
            whole = unpack(ExecutionPlan, model.plan)
            plan = replace(whole, steps=(), workspaces=(0,) * len(whole.workspaces))
            streams = [self._stream(name, plan, model.entries) for name in plan.engines]
            used = {constant.reorder for constant in plan.constants if constant.reorder is not None}
            primitives = realize_all(plan, model.entries, [stream.engine for stream in streams], used)
            model.reorders = PlanExecutor(plan, primitives, streams, [0] * len(plan.constants))
        return model.reorders

    def _stream(self, name: str, plan: ExecutionPlan, entries: list[bytes]) -> Stream:
        """Return a stream on an engine: on OpenCL one for all models, on the CPU on the threadpool of all models."""
        if name == "cpu":
            attr = StreamAttr("cpu")
            attr.set_threadpool(self._threadpool(plan, entries))
            return Stream(self._engine, attr)
        from ..engines.opencl import runtime

        index = _index(name)
        if index not in self._opencl_streams:
            runtime(self._threads)  # before the engine, which would start the drivers with all cores
            self._opencl_streams[index] = Stream(Engine("opencl", index, kept=0))
        return self._opencl_streams[index]

    def _threadpool(self, plan: ExecutionPlan, entries: list[bytes]) -> ThreadpoolInterface | None:
        """Return the threadpool of CPU steps, None for this thread alone; the first plan with a region loop brings it."""
        if self._pool is None and plan.loop is not None:
            from ..threadpools.native import NativePool

            kernels = [self._engine.cpu.realize(binary) for binary in parse_entry(entries[plan.loop]).binaries]
            self._pool = NativePool(self._threads, kernels=kernels)
        return self._pool

    def _apply(self, message: Message) -> Message:
        self._rings.pause()
        self._prints.begin([Kind.PRINTED, message[1]])
        self._slots.ring, self._slots.request = 0, message[1]
        try:
            return self._functions.apply(message)
        finally:
            self._prints.end()

    def _probe(self, message: Message) -> Message:
        from ..engines.opencl import opencl_target, runtime

        _, token, engine = message
        index = _index(engine)
        runtime(self._threads)
        return [Kind.ANSWER, token, "numba" in sys.modules, encode(opencl_target(index))]


def _index(engine: str) -> int:
    """Return the device number of an engine ``opencl`` or ``opencl:INDEX``. Raises ValueError for any other text."""
    kind, _, index = engine.partition(":")
    if kind != "opencl":
        raise ValueError(f"there is no engine {engine!r}; known: cpu, opencl, opencl:INDEX")
    return int(index or 0)
