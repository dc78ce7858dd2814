"""A graph compiled for one executor, inputs of certain shapes and a phase: a plan with its primitives and constants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from poolrt.cachestore.constant_files import ConstantFiles
from poolrt.cachestore.deferred_dataclass import dataclass, replace
from poolrt.graph.constant import Constant
from poolrt.graph.lowered_plan import LoweredPlan
from poolrt.inprocess.device_context import DeviceContext, InstanceKey
from poolrt.workers.desc import Arg
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.plans.execution_plan import PlaceKind, Step
from poolrt.workers.plans.executor import PlanExecutor
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.streams.stream import Stream
from poolrt.workers.verbose.text import describe_primitive

from .constants import ConstantKeys, copy_to_engine, is_in_file, reorder_constant, source_form, store_constant
from .shared_constants import SharedConstants

T = TypeVar("T")
#: Bytes of Python's objects for a step, of its primitive and of an executor: 2.8 KB were measured for a plan of 75 steps.
_STEP_BYTES: Final = 2800


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """What an executor computes with: streams by name of engine, the primitive cache, its identity and its instances.

    A thread holds ``locks`` while it makes what all threads share, so that it is made once: the first outside of
    threadpools, the second within their tasks. The first's holder may be waiting for such a task, which makes it twice.
    """

    streams: Mapping[str, Stream]
    cache: PrimitiveProvider | None
    instances: DeviceContext
    executor: object
    locks: tuple[threading.RLock, threading.RLock]
    #: Large constants that all processes of the node share; None: each has its own.
    files: ConstantFiles | None

    def within(self) -> bool:
        """Return whether the calling thread runs a task of a threadpool that a stream computes on."""
        return any(stream.engine.kind == "cpu" and stream.pool.get_in_parallel() for stream in self.streams.values())

    def thread(self, within: bool) -> int:
        """Return the number under which the calling thread has instances to itself, 0 where threads do not share.

        Within a task it is another one: a thread that waits for a pool may run tasks of it meanwhile.
        """
        number = self.instances.thread()
        return ~number if within else number

    def find_or_add(self, key: InstanceKey, make: Callable[[], T]) -> T:
        """Return an instance that all threads of the executor share."""
        found: T | None = self.instances.find(key)
        if found is None:
            with self.locks[self.within()]:
                found = self.instances.find_or_add(key, make)
        return found


class CompiledGraph:
    """A plan with created primitives, which threads share; each thread has a plan executor of its own."""

    def __init__(
        self, lowered: LoweredPlan, constants: Mapping[int, Constant], keys: ConstantKeys, context: ExecutionContext
    ) -> None:
        """Get or create the primitives; ``constants`` are by value of the graph. Raises CreationFailed."""
        self.lowered = lowered
        self._plan = plan = lowered.plan
        self._keys = keys
        self._context = context
        self._streams = [context.streams[name] for name in plan.engines]
        self._descs = lowered.primitives
        used = dict.fromkeys(step.primitive for step in plan.steps if isinstance(step, Step))
        self._primitives = {number: self._primitive(number) for number in used}
        self._shared = None if context.files is None else SharedConstants(context.files)
        # Before this graph is an instance, which may evict the last plan that holds the same constants.
        self._memories = [self._constant(number, constants) for number in range(len(plan.constants))]
        self._uploads = {place: self._upload(*place, constants) for place in self._read_elsewhere()}
        self._shared = None

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """The primitives of the steps, each once, in the order of their first use."""
        return tuple(self._primitives.values())

    def parts(self) -> list[tuple[object, int]]:
        """Return constants, the resources of the primitives, and Python's objects for the steps, with their bytes."""
        steps = self.lowered, _STEP_BYTES * len(self._plan.steps)
        resources = [part for primitive in self._primitives.values() for part in primitive.resource.parts()]
        return [steps, *self._constant_parts(), *resources]

    def executor(self, within: bool, verbose: bool, record: Callable[[int, int], None] | None = None) -> PlanExecutor:
        """Return an executor of the plan for one thread, ``within`` tasks of a threadpool or not; ``verbose`` writes lines.

        ``record`` gets the number and nanoseconds of each executed step instead.
        """
        plan = self._plan
        if verbose:
            engines = [self._streams[engine].engine.index for engine in plan.primitives]
            plan = replace(plan, texts=tuple(map(describe_primitive, self._descs, engines)))
        return PlanExecutor(
            plan,
            {number: primitive.resource for number, primitive in self._primitives.items()},
            self._streams,
            [memory.address for memory in self._memories],
            uploads={place: memory.device_buffer for place, memory in self._uploads.items()},
            within=within,
            keep=self._constant_parts(),
            record=record,
            behind=self._read_behind(),
        )

    def _read_behind(self) -> tuple[int, ...]:
        """Return the inputs behind which steps may read: kernels, or a device that works on the host's memory."""
        read = set[int]()
        for step in self._plan.steps:
            if isinstance(step, Step):
                if not self._descs[step.primitive].stays_inside():
                    read.update(place.value for _, place in step.args if place.kind is PlaceKind.INPUT)
            elif step.source.kind is PlaceKind.INPUT:
                read.add(step.source.value)
        return tuple(sorted(read))

    def _constant_parts(self) -> list[tuple[object, int]]:
        return [(memory, memory.desc.nbytes) for memory in (*self._memories, *self._uploads.values())]

    def _primitive(self, number: int) -> Primitive:
        engine = self._streams[self._plan.primitives[number]].engine
        return Primitive(self._descs[number], engine, self._context.cache)

    def _read_elsewhere(self) -> set[tuple[int, int]]:
        """Return engine and number of the constants that engines read which do not work on the host's memory."""
        read = [
            (self._plan.primitives[step.primitive], place.value)
            for step in self._plan.steps
            if isinstance(step, Step)
            for _, place in step.args
            if place.kind is PlaceKind.CONSTANT
        ]
        return {(engine, constant) for engine, constant in read if not self._streams[engine].works_on_host}

    def _constant(self, number: int, constants: Mapping[int, Constant]) -> Memory:
        """Return a constant in its final layout, in the host's memory."""
        planned, shared = self._plan.constants[number], self._shared
        constant = constants[planned.value]

        def make() -> Memory:
            if planned.reorder is None:
                if shared is None or is_in_file(constant):
                    return store_constant(constant)
                return shared.share(constant, None, constant.nbytes, lambda room: store_constant(constant, room))
            stream = self._streams[self._plan.primitives[planned.reorder]]
            wanted = self._descs[planned.reorder]
            form = source_form(constant, wanted)

            def reordered(room: Memory | None = None) -> Memory:
                return reorder_constant(constant, Primitive(form, stream.engine, self._context.cache), stream, room)

            if shared is None or stream.engine.kind != "cpu":
                return reordered()
            return shared.share(constant, wanted, form.memories()[Arg.DST].nbytes, reordered)

        return self._context.find_or_add(self._constant_key(number, "", constant), make)

    def _upload(self, engine: int, number: int, constants: Mapping[int, Constant]) -> Memory:
        """Return a constant in its final layout, in the memory of an engine."""
        key = self._constant_key(number, self._plan.engines[engine], constants[self._plan.constants[number].value])
        target = self._streams[engine].engine
        return self._context.find_or_add(key, lambda: copy_to_engine(self._constant(number, constants), target))

    def _constant_key(self, number: int, engine: str, constant: Constant) -> InstanceKey:
        planned = self._plan.constants[number]
        form = None if planned.reorder is None else self._descs[planned.reorder].memories()[Arg.DST]
        details: tuple[Any, ...] = (engine, form, *self._keys.key(constant))
        return InstanceKey("constant", details, (constant.dims,), self._context.executor)
