"""The compiled graphs of one executor: found by the shapes of their inputs, made by the first thread that needs one."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from poolrt.cachestore.deferred_namedtuple import NamedTuple
from poolrt.cachestore.forked_locks import freed_in_children, held_by_this_thread
from poolrt.cachestore.garbage import collection_paused
from poolrt.graph.constant import Constant, storage_type
from poolrt.graph.lower import lower
from poolrt.runs.run_inputs import Outputs
from poolrt.workers.engines.engine import Engine
from poolrt.workers.memory.array_address import address_of
from poolrt.workers.memory.array_room import copy_with_room, has_room_behind, readable_in_place
from poolrt.workers.memory.buffer import SLACK
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.jobs import Jobs, JobsOnPools
from poolrt.workers.threadpools.sequential import SequentialPool

from .compiled_graph import CompiledGraph, ExecutionContext
from .constants import ConstantKeys
from .device_context import DeviceContext, ExecutorIdentity, InstanceKey
from .repeated_runs import Input, Port, Repeat, Run, repeat_nothing, repeat_run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.cachestore.constant_files import ConstantFiles
    from poolrt.graph.ir import GraphIR
    from poolrt.graph.lowered_plan import LoweredPlan
    from poolrt.workers.plans.execution_plan import ExecutionPlan
    from poolrt.workers.plans.executor import PlanExecutor
    from poolrt.workers.primitives.provider import PrimitiveProvider

Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"
#: Returns the graph for inputs of these shapes, ready to be lowered; the second argument is the variant that was asked for.
MakeGraph: TypeAlias = "Callable[[Shapes, str], GraphIR]"
_HOST: Final = "cpu"


class _Latest(NamedTuple):
    """What the last run was for, its executor as long as that is kept, and its outputs."""

    thread: int
    shapes: Shapes
    variant: str
    verbose: bool
    jobs: tuple[Jobs, ...]
    executor: Callable[[], PlanExecutor | None]
    ports: Sequence[Port]
    #: Numbers of the inputs behind which kernels may read.
    behind: Sequence[int]


class CompiledGraphs:
    """Runs graphs, one for each set of shapes and variant, with one set of constants. ``make`` returns a graph.

    Guarantees: threads that need the same new graph at once get one, which one of them makes while the others wait; runs
    of graphs that exist do not wait for it if the context is shared. Equal constants of the graphs are one. A finalizer or a
    signal's handler may run a graph in the middle of a run of its thread: it computes in memory of its own.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        stream: Stream | None,
        engines: Iterable[str],
        constants: Iterable[Constant],
        context: DeviceContext,
        cache: PrimitiveProvider | None,
        files: ConstantFiles | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """Compute on ``stream``, or a new one of ``engine``, and on one for each engine that ``engines`` names.

        ``constants`` are those that graphs have in common: their arrays outlive this and do not change. ``files`` has those
        that processes share. ``names`` are those of the inputs, for `repeat`, without which nothing is repeated.
        """
        self._names: Final = names
        self._keys: Final = ConstantKeys(constants)
        self._engine: Final = engine
        # An object of its own: the address of this object may come to be another's.
        identity = ExecutorIdentity(name)
        locks = freed_in_children(threading.RLock()), freed_in_children(threading.RLock())
        streams = _open_streams(engine, stream, engines)
        self.context: Final = ExecutionContext(streams, cache, context, identity, locks, files)
        self._instances: Final = context
        self._pools: Final = [stream.pool for stream in streams.values() if stream.engine.kind == "cpu"]
        self._jobs: Final = JobsOnPools(self._pools)
        #: No thread is ever within a task of a pool without threads.
        self._could_be_within: Final = any(type(pool) is not SequentialPool for pool in self._pools)
        self._output_memory: Final = context.output_memory
        self._latest: _Latest | None = None
        #: Runs as the last time, if only the memory of the inputs has changed.
        self.repeat: Repeat = repeat_nothing
        #: The second is for tasks of a threadpool: the holder of the first may be waiting for such a task.
        self._turns = freed_in_children(threading.RLock()), freed_in_children(threading.RLock())
        held = [stream.is_held for stream in streams.values()]
        held += [] if context.shared else [held_by_this_thread(turn) for turn in self._turns]
        self._held: Final = held
        weakref.finalize(self, context.forget, identity).atexit = False

    def run(
        self,
        arrays: Sequence[NDArray[Any]],
        addresses: Sequence[int],
        variant: str,
        make: MakeGraph,
        into: Mapping[str, NDArray[Any]] | None = None,
        names: Sequence[str] | None = None,
    ) -> Outputs:
        """Run on inputs in order, all of them C-contiguous and aligned, and return the outputs as new arrays.

        ``addresses`` are those of the inputs. One that kernels cannot read there, because it ends at the end of a page, is
        copied. An output is written into its array of ``into`` where kernels can do that, and
        is this array then. ``names`` are those of the inputs for `repeat`, if the constructor was given none.
        """
        within = self._could_be_within and any(pool.get_in_parallel() for pool in self._pools)
        if not within and self._is_inside():
            return self._run_inside(arrays, addresses, variant, make, into)
        if self._instances.shared:
            return self._execute(arrays, addresses, variant, make, into, within, names)
        with self._turns[within]:
            return self._execute(arrays, addresses, variant, make, into, within, names)

    def find(self, shapes: Shapes, variant: str, make: MakeGraph) -> CompiledGraph:
        """Return the compiled graph for inputs of these shapes, made now if there is none."""
        key = InstanceKey("graph", (variant,), shapes, self.context.executor)
        return self.context.find_or_add(key, lambda: self._compile(shapes, variant, make))

    def time_steps(
        self, runs: int, arrays: Sequence[NDArray[Any]], addresses: Sequence[int], variant: str, make: MakeGraph
    ) -> tuple[LoweredPlan, list[list[int]]]:
        """Run once and then ``runs`` times; return the plan and the times of each step in the later runs, in nanoseconds."""
        is_inside = self._is_inside()
        with self._turns[False]:
            graph = self.find(tuple([array.shape for array in arrays]), variant, make)
            times: list[list[int]] = [[] for _ in graph.lowered.plan.steps]
            executor = graph.executor(is_inside, False, lambda step, nanoseconds: times[step].append(nanoseconds))
            arrays, addresses = _with_room(arrays, addresses, executor.behind)
            outputs, places = self._take_outputs(_ports(executor.plan), arrays, {})
            for _ in range(runs + 1):
                executor.run(addresses, places)
            outputs.clear()  # their memory was in use until now
        return graph.lowered, [each[1:] for each in times]

    def _execute(
        self,
        arrays: Sequence[NDArray[Any]],
        addresses: Sequence[int],
        variant: str,
        make: MakeGraph,
        into: Mapping[str, NDArray[Any]] | None,
        within: bool,
        names: Sequence[str] | None,
    ) -> Outputs:
        # In one piece: for a small graph, calls of functions take as long as what they do here.
        shapes = tuple([array.shape for array in arrays])
        verbose, jobs = self._engine.verbose.executes, self._jobs.current()
        thread = self.context.thread(within) if within or self._instances.shared else 0
        latest, executor = self._latest, None
        # An instance that is found twice in a row needs no key.
        if (
            latest is not None
            and latest.shapes == shapes
            and latest.jobs is jobs
            and latest.thread == thread
            and latest.variant == variant
            and latest.verbose == verbose
        ):
            executor = latest.executor()
        if executor is None or latest is None or not self._instances.find_again(executor):
            key = InstanceKey("plan", (variant, verbose, *jobs), shapes, self.context.executor, thread)
            make_executor = partial(self._executor, shapes, variant, make, within, verbose)
            executor = self._instances.find_or_add(key, make_executor)
            ports = _ports(executor.plan)
            behind = executor.behind
            found = weakref.ref(executor)
            self._latest = latest = _Latest(thread, shapes, variant, verbose, jobs, found, ports, behind)
            self.repeat = repeat_nothing
            names = names if self._names is None else self._names
            if names is not None and executor.alone is not None and not (verbose or within):
                inputs = [
                    Input(name, array.dtype, array.shape, array.nbytes, SLACK * (number in behind))
                    for number, (name, array) in enumerate(zip(names, arrays, strict=True))
                ]
                run = Run(variant, inputs, ports, jobs, found, threading.get_ident() if self._instances.shared else 0)
                asked = self._pools if self._could_be_within else ()
                self.repeat = repeat_run(run, self._engine, self._instances, asked, self._jobs, executor.is_running)
        if (within or executor.alone is None) and executor.is_running():
            return self._run_inside(arrays, addresses, variant, make, into)
        if latest.behind:
            arrays, addresses = _with_room(arrays, addresses, latest.behind)
        if into:
            outputs, places = self._take_outputs(latest.ports, arrays, into)
        else:
            outputs, places, take = Outputs(), [], self._output_memory.take
            for name, dims, dtype, nbytes in latest.ports:
                outputs[name], place = take(dims, dtype, nbytes)
                places.append(place)
        executor.run(addresses, places)
        return outputs

    def _is_inside(self) -> bool:
        """Return whether the calling thread is in the middle of a run, which a finalizer or a signal's handler interrupts."""
        return any(is_held() for is_held in self._held)

    def _run_inside(
        self,
        arrays: Sequence[NDArray[Any]],
        addresses: Sequence[int],
        variant: str,
        make: MakeGraph,
        into: Mapping[str, NDArray[Any]] | None,
    ) -> Outputs:
        """Run in the middle of another run of the calling thread, on this thread and in memory that is dropped afterwards."""
        shapes = tuple([array.shape for array in arrays])
        executor = self._executor(shapes, variant, make, True, self._engine.verbose.executes)
        arrays, addresses = _with_room(arrays, addresses, executor.behind)
        outputs, places = self._take_outputs(_ports(executor.plan), arrays, into or {})
        executor.run(addresses, places)
        return outputs

    def _take_outputs(
        self, ports: Sequence[Port], inputs: Sequence[NDArray[Any]], into: Mapping[str, NDArray[Any]]
    ) -> tuple[Outputs, list[int]]:
        """Return arrays for the outputs of a run, those of ``into`` if kernels can write them, and their addresses."""
        outputs, addresses, take = Outputs(), [], self._output_memory.take
        for name, dims, dtype, nbytes in ports:
            given = into.get(name)
            if given is not None and _is_writable(given, dims, dtype, inputs, into):
                outputs[name] = given
                addresses.append(address_of(given))
                continue
            outputs[name], address = take(dims, dtype, nbytes)
            addresses.append(address)
        return outputs, addresses

    def _executor(self, shapes: Shapes, variant: str, make: MakeGraph, within: bool, verbose: bool) -> PlanExecutor:
        return self.find(shapes, variant, make).executor(within, verbose)

    def _compile(self, shapes: Shapes, variant: str, make: MakeGraph) -> CompiledGraph:
        with collection_paused(made_to_stay=True):  # the descriptors of a graph are many, and stay
            ir = make(shapes, variant)
            lowered = lower(ir, {name: stream.target for name, stream in self.context.streams.items()})
            return CompiledGraph(lowered, ir.constants, self._keys, self.context)


def _with_room(
    arrays: Sequence[NDArray[Any]], addresses: Sequence[int], behind: Iterable[int]
) -> tuple[Sequence[NDArray[Any]], Sequence[int]]:
    """Return inputs and their addresses, copies of those behind which kernels read what may not be there."""
    short = [number for number in behind if not has_room_behind(addresses[number] + arrays[number].nbytes)]
    if not short:
        return arrays, addresses
    arrays, addresses = [*arrays], [*addresses]
    for number in short:
        arrays[number] = copy_with_room(arrays[number])
        addresses[number] = address_of(arrays[number])
    return arrays, addresses


def _ports(plan: ExecutionPlan) -> list[Port]:
    return [(port.name, port.dims, storage_type(port.dtype), port.nbytes) for port in plan.outputs]


def _is_writable(
    array: NDArray[Any],
    dims: tuple[int, ...],
    dtype: np.dtype[Any],
    inputs: Sequence[NDArray[Any]],
    outputs: Mapping[str, NDArray[Any]],
) -> bool:
    """Return whether kernels can write an output into an array: nothing else of the run is in its memory."""
    if array.shape != dims or array.dtype != dtype or not readable_in_place(array) or not array.flags.writeable:
        return False
    others = [*inputs, *(each for each in outputs.values() if each is not array)]
    return not any(np.may_share_memory(array, other) for other in others)


def name_of(engine: Engine) -> str:
    """Return the name of an engine in graphs."""
    return engine.kind if engine.kind == "cpu" else f"{engine.kind}:{engine.index}"


def open_engine(name: str) -> Engine:
    """Return the engine of a name in graphs. Raises EngineUnavailable."""
    kind, _, index = name.partition(":")
    return Engine(kind, int(index or 0))


def _open_streams(engine: Engine, stream: Stream | None, names: Iterable[str]) -> dict[str, Stream]:
    """Return a stream for an engine, for each engine that is named, and for the host, in this order."""
    found = {name_of(engine): Stream(engine) if stream is None else stream}
    for name in dict.fromkeys((*names, _HOST)):
        if name not in found:
            found[name] = Stream(open_engine(name))
    return found
