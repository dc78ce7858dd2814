"""The worker process: realizes models on first use, runs them on memory of the arena, and applies functions of users.

It imports no compiler, no NumPy and no Redis: it runs machine code from entries. Only a user's function or an OpenCL
engine imports more.
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from poolrt.cachestore.portable_error import describe_exception, sendable

from ..desc.codec import encode, unpack
from ..engines.engine import Engine
from ..ipc.channel import ESCAPES, MAX_MESSAGE, Channel, ChannelClosed, Message
from ..ipc.protocol import Kind, check_message
from ..memory.arena_view import ArenaView
from ..plans.execution_plan import ExecutionPlan
from ..plans.executor import PlanExecutor
from ..plans.realization import realize_all
from ..primitives.entry import parse_entry
from ..streams.attributes import StreamAttr
from ..streams.stream import Stream
from ..verbose.output import set_verbose
from .prints import Prints

if TYPE_CHECKING:
    from ..threadpools.interface import ThreadpoolInterface


def main(sock: socket.socket, descriptors: list[int], options: dict[str, Any]) -> None:
    """Serve the coordinator until it closes the connection."""
    arena = ArenaView(descriptors[0])
    arena.keep_from_forks()  # a user's function may fork a process that outlives this one
    os.close(descriptors[0])
    set_verbose(options["verbose"])
    worker = _Worker(Channel(sock), arena, int(options["threads"]))
    try:
        worker.work()
    except ChannelClosed:
        pass


#: Characters of an exception's text that are sent, its last ones: it may quote arguments of any size.
_TEXT: Final = 16 * 1024


class _Model:
    """A model as it was sent; its executor is made on first use."""

    __slots__ = ("constants", "entries", "executor", "plan")

    def __init__(self, plan: bytes, entries: list[bytes], constants: list[int]) -> None:
        self.plan = plan
        self.entries = entries
        self.constants = constants
        self.executor: PlanExecutor | None = None


class _Worker:
    def __init__(self, channel: Channel, arena: ArenaView, threads: int) -> None:
        self._channel = channel
        self._arena = arena
        self._threads = threads
        self._engine = Engine("cpu", kept=0)  # dropping a model unmaps its kernels
        self._pool: ThreadpoolInterface | None = None
        self._opencl_streams: dict[int, Stream] = {}
        self._models: dict[int, _Model] = {}
        self._prints = Prints(channel)
        self._actions: dict[Kind, Callable[[Message], Message | None]] = {
            Kind.EXECUTE: self._execute,
            Kind.REORDER: self._reorder,
            Kind.APPLY: self._apply,
            Kind.PROBE: self._probe,
            Kind.MODEL: self._take_model,
            Kind.DROP: self._drop_model,
        }

    def work(self) -> None:
        channel = self._channel
        channel.send([Kind.READY, os.getpid(), len(os.listdir("/proc/self/task"))])
        while True:
            message = channel.receive(block=True)
            if message is None:
                continue
            answer = self._answer(check_message(message), message)
            if answer is not None:
                self._prints.send(answer)

    def _answer(self, kind: Kind, message: Message) -> Message | None:
        action = self._actions.get(kind)
        if action is None:
            raise ValueError(f"a worker does not accept {kind.name}")
        try:
            return action(message)
        except Exception as error:  # noqa: BLE001 - the error is the answer to the coordinator
            return [Kind.BROKEN, message[1], *describe_exception(error)]

    def _execute(self, message: Message) -> Message:
        _, token, number, inputs, outputs = message
        model = self._models[number]
        executor = model.executor or self._realize(model)
        base = self._arena.address
        executor.run([base + offset for offset in inputs], [base + offset for offset in outputs])
        return [Kind.FINISHED, token, "numba" in sys.modules]

    def _reorder(self, message: Message) -> Message:
        _, token, number, constant, source, destination = message
        model = self._models[number]
        executor = model.executor or self._realize(model)
        executor.reorder_constant(constant, self._arena.address + source, self._arena.address + destination)
        return [Kind.FINISHED, token, "numba" in sys.modules]

    def _take_model(self, message: Message) -> None:
        _, number, plan, entries, constants = message
        self._models[number] = _Model(plan, entries, constants)

    def _drop_model(self, message: Message) -> None:
        model = self._models.pop(message[1], None)
        if model is not None and model.executor is not None:
            model.executor.close()

    def _realize(self, model: _Model) -> PlanExecutor:
        plan = unpack(ExecutionPlan, model.plan)
        constants = [self._arena.address + offset for offset in model.constants]
        streams = [self._stream(name, plan, model.entries) for name in plan.engines]
        primitives = realize_all(plan, model.entries, [stream.engine for stream in streams])
        model.executor = PlanExecutor(plan, primitives, streams, constants)
        return model.executor

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
        self._prints.begin(message[1])
        try:
            return _apply(message)
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


def _apply(message: Message) -> Message:
    """Call a user's function. Its exception is the answer, also one that is meant to exit a process."""
    import dill
    import msgpack

    token, payload = message[1:]
    process = os.getpid()
    try:
        places, call = msgpack.unpackb(payload, unicode_errors=ESCAPES)
        sys.path.extend(place for place in places if place not in sys.path)
        function, args, kwargs = dill.loads(call)
        try:
            value = dill.dumps(function(*args, **kwargs))
        finally:
            # The function has forked, and the child returned from it: only the parent goes on as the worker.
            if os.getpid() != process:
                os._exit(0)
        if len(value) > MAX_MESSAGE // 2:
            raise ValueError(
                f"the function returned {len(value)} bytes, more than {MAX_MESSAGE // 2}: return less, or use a graph"
            )
    except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt of a user's function too
        return [Kind.THREW, token, sendable(traceback.format_exc()[-_TEXT:]), _pickle_exception(error)]
    return [Kind.ANSWER, token, "numba" in sys.modules, value]


def _pickle_exception(error: BaseException) -> bytes:
    """Return a pickled exception, empty if it cannot be pickled or is too large to be sent."""
    import dill

    try:
        data: bytes = dill.dumps(error)
        dill.loads(data)
    except Exception:  # noqa: BLE001 - a user's class may fail in any way; only the text is sent then
        return b""
    return data if len(data) <= MAX_MESSAGE // 2 else b""
