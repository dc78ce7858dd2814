"""A graph made ready for one executor, inputs of certain shapes and a phase: a schedule with the keys of its instances."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from poolrt.graph.constant import Constant
from poolrt.graph.lowered_plan import LoweredPlan
from poolrt.inprocess.device_context import DeviceContext, InstanceKey
from poolrt.workers.desc import Arg, MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.memory.opencl import shares_host_memory
from poolrt.workers.operations.reorder import Reorder
from poolrt.workers.plans.execution_plan import PlaceKind
from poolrt.workers.primitives.cache import PrimitiveCache
from poolrt.workers.streams.stream import Stream

from .constants import Identities, on_device, reordered, stored
from .schedule import ON_HOST, WHOLE, Argument, Copy, Execution, Schedule, Tensor, scheduled
from .tensors import byte_memory, copy_bytes, part

T = TypeVar("T")
_HOST: Final = "cpu"
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Means:
    """What an executor computes with: streams by name of engine, the primitive cache, its identity and its context.

    ``making`` is held while what its threads have in common is made, so that it is made once: the first from outside
    of threadpools, the second from within tasks of those that the streams compute on. Whoever holds the first may be
    waiting for just such a task, which makes it once more then.
    """

    streams: Mapping[str, Stream]
    cache: PrimitiveCache | None
    context: DeviceContext
    executor: object
    making: tuple[threading.RLock, threading.RLock]

    def within(self) -> bool:
        """Return whether the calling thread runs a task of a threadpool that a stream computes on."""
        return any(stream.engine.kind == "cpu" and stream.pool.get_in_parallel() for stream in self.streams.values())

    def thread(self) -> int:
        """Return the number by which the calling thread has instances to itself, another one within tasks; 0 for none.

        A thread that waits for a pool may run tasks of it meanwhile.
        """
        number = self.context.thread()
        return ~number if self.within() else number

    def common(self, key: InstanceKey, make: Callable[[], T]) -> T:
        """Return an instance that all threads of the executor have in common."""
        found: T | None = self.context.find(key)
        if found is None:
            with self.making[self.within()]:
                found = self.context.find_or_add(key, make)
        return found


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Memories of an execution by argument, and the tensors that they are parts of."""

    tensors: tuple[Memory, ...]
    memories: Mapping[int, Memory]


class _Keyed(NamedTuple):
    """A step on a stream, what its instances are found by, and how they are made: arguments each on an engine."""

    stream: Stream
    primitive: InstanceKey
    memories: InstanceKey
    create: Callable[[], Primitive]
    arguments: tuple[tuple[Argument, Engine], ...]


class _Ready(NamedTuple):
    """A step with its instances."""

    stream: Stream
    primitive: Primitive
    memories: Mapping[int, Memory]


class Prepared:
    """A graph that can be iterated. Memories and primitives are the context's: found there in each iteration, or made.

    Several threads may iterate at once where their context is shared.
    """

    def __init__(
        self, lowered: LoweredPlan, constants: Mapping[int, Constant], identities: Identities, shapes: Shapes, phase: str,
        means: Means,
    ) -> None:  # fmt: skip
        """``constants`` are by value of the wire form, ``shapes`` those of the inputs."""
        self.plan = lowered.plan
        self._means = means
        self._streams = [means.streams[name] for name in self.plan.engines]
        on_host = [_on_host(stream.engine) for stream in self._streams]
        self._schedule: Schedule = scheduled(lowered, on_host)
        self._lowered = lowered
        self._constants = constants
        self._tensor_keys = [self._tensor_key(each, identities, shapes, phase) for each in self._schedule.tensors]
        self._steps = [self._keyed(step, shapes, phase) for step in self._schedule.steps]

    def iterate(self, give: Callable[[int, Memory], None], take: Callable[[int, Memory], T]) -> list[T]:
        """Execute all steps once; return what ``take`` makes of each output.

        ``give`` and ``take`` get the numbers of inputs and outputs and their bytes in the host's memory. Whatever an
        iteration uses is held by it, so that nothing that is evicted meanwhile is missed.
        """
        thread = self._means.thread()
        tensors = [
            self._tensor(tensor, nbytes, key, thread)
            for (tensor, nbytes), key in zip(self._schedule.tensors, self._tensor_keys, strict=True)
        ]
        ready = [step if isinstance(step, Copy) else self._ready(step, tensors, thread) for step in self._steps]
        # Inputs and outputs come first among the tensors.
        inputs, outputs = len(self.plan.inputs), len(self.plan.outputs)
        for number in range(inputs):
            give(number, tensors[number])
        busy: Stream | None = None
        for step in ready:
            stream = None if isinstance(step, Copy) else step.stream
            if busy is not None and stream is not busy:
                busy.wait()
            busy = stream
            if isinstance(step, Copy):
                copy_bytes(tensors[step.source], step.start, tensors[step.destination], step.nbytes)
            else:
                step.primitive.execute(step.stream, step.memories)
        if busy is not None:
            busy.wait()
        return [take(number, tensors[inputs + number]) for number in range(outputs)]

    def _ready(self, keyed: _Keyed, tensors: Sequence[Memory], thread: int) -> _Ready:
        """Return a step with its primitive and memories."""
        context = self._means.context
        own, given = keyed.primitive, keyed.memories
        if thread:
            own, given = own._replace(thread=thread), given._replace(thread=thread)
        primitive = context.find_or_add(own, keyed.create)
        used = tuple(tensors[argument.tensor] for argument, _ in keyed.arguments)
        arguments: _Arguments | None = context.find(given)
        # A tensor that was evicted and made anew lies elsewhere.
        if arguments is None or any(a is not b for a, b in zip(arguments.tensors, used, strict=True)):
            parts = {a.arg: part(tensors[a.tensor], a.start, a.desc, engine) for a, engine in keyed.arguments}
            arguments = _Arguments(used, parts)
            context.add(given, arguments)
        return _Ready(keyed.stream, primitive, arguments.memories)

    def _tensor(self, tensor: Tensor, nbytes: int, key: InstanceKey, thread: int) -> Memory:
        if not _is_constant(tensor):
            key = key._replace(thread=thread) if thread else key
            engine = None if tensor.engine == ON_HOST else self._streams[tensor.engine].engine
            return self._means.context.find_or_add(key, lambda: byte_memory(nbytes, engine))
        if tensor.engine == ON_HOST:
            return self._means.common(key, lambda: self._constant(tensor.value))
        device = self._streams[tensor.engine].engine
        return self._means.common(key, lambda: on_device(self._constant(tensor.value), device))

    def _constant(self, number: int) -> Memory:
        planned = self.plan.constants[number]
        constant = self._constants[planned.value]
        if planned.reorder is None:
            return stored(constant)
        stream = self._streams[self.plan.primitives[planned.reorder]]
        reorder = Primitive(self._lowered.primitives[planned.reorder], stream.engine, self._means.cache)
        return reordered(constant, reorder, stream)

    def _tensor_key(
        self, tensor: tuple[Tensor, int], identities: Identities, shapes: Shapes, phase: str
    ) -> InstanceKey:
        place, nbytes = tensor
        executor = self._means.executor
        if _is_constant(place):
            planned = self.plan.constants[place.value]
            constant = self._constants[planned.value]
            pd = None if planned.reorder is None else self._lowered.primitives[planned.reorder]
            form = None if pd is None else pd.memories()[Arg.DST]
            where = "" if place.engine == ON_HOST else self.plan.engines[place.engine]
            in_place: tuple[Any, ...] = (where, form, *identities.of(constant))
            return InstanceKey("constant", "", in_place, (constant.dims,), executor)
        return InstanceKey(
            "tensor", f"{place.kind.name.lower()} {place.value}", (*place, nbytes, phase), shapes, executor
        )

    def _keyed(self, step: Execution | Copy, shapes: Shapes, phase: str) -> _Keyed | Copy:
        """Return a step with the keys of its instances.

        A primitive is for the shapes of its own sources, memory for those of the whole graph.
        """
        if isinstance(step, Copy):
            return self._crossing(step, shapes, phase)
        stream = self._streams[step.engine]
        # The digest has what sets operations apart: algorithm, axis, propagation kind, post-ops, layouts.
        in_place = (self.plan.engines[step.engine], step.primitive.op.kind, step.digest)
        written = step.primitive.op.outputs()
        sources = tuple(a.desc.dims for a in step.arguments if a.arg not in written)
        return _Keyed(
            stream,
            InstanceKey("primitive", step.output, in_place, sources, self._means.executor),
            InstanceKey("memories", step.output, (*in_place, phase), shapes, self._means.executor),
            partial(Primitive, step.primitive, stream.engine, self._means.cache),
            tuple((argument, stream.engine) for argument in step.arguments),
        )

    def _crossing(self, step: Copy, shapes: Shapes, phase: str) -> _Keyed | Copy:
        """Return a copy from one engine to another as a reorder between them.

        One that begins inside of a device's buffer, which no memory can, stays as it is.
        """
        ends = [self._schedule.tensors[number][0].engine for number in (step.source, step.destination)]
        if ends[0] == ends[1] or (step.start and ends[0] != ON_HOST):
            return step
        names = tuple(_HOST if engine == ON_HOST else self.plan.engines[engine] for engine in ends)
        source, destination = (self._means.streams[name].engine for name in names)
        desc = MemoryDesc((step.nbytes,), "u8")
        described = Reorder.PrimitiveDesc(source, desc, destination, desc)
        in_place = (*names, "reorder", step.start)
        return _Keyed(
            next(stream for stream in self._means.streams.values() if stream.engine is described.engine),
            InstanceKey("primitive", step.output, in_place, (desc.dims,), self._means.executor),
            InstanceKey("memories", step.output, (*in_place, phase), shapes, self._means.executor),
            partial(described.create, self._means.cache),
            (
                (Argument(Arg.SRC, step.source, step.start, desc), source),
                (Argument(Arg.DST, step.destination, 0, desc), destination),
            ),
        )


def _is_constant(tensor: Tensor) -> bool:
    return tensor.kind is PlaceKind.CONSTANT and tensor.piece == WHOLE


def _on_host(engine: Engine) -> bool:
    return engine.kind == "cpu" or shares_host_memory(engine.opencl)
