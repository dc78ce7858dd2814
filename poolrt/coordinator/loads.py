"""Loads: the steps that turn a client's graph into a model.

    probe the engine's target (OpenCL) -> lower -> look up -> create what is missing -> give out slots for constants
    -> reorder those that need another layout -> send LOADED

The client writes constants during look-up and creation. Constants that need another layout wait for their reorder in
`Staging`, whose few pages serve one constant after the other. So do large ones that the node keeps in files: a worker writes
those that no process of the node has written, and they have no slot in the arena. What cannot be written gets a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.cachestore.lru import Lru
from poolrt.cachestore.portable_error import PortableError
from poolrt.errors import CreationFailed, GraphRefused, PoolRefused
from poolrt.graph.engine_name import require_engines
from poolrt.memory.arena import ArenaExhausted
from poolrt.workers.ipc.bounded_decoding import Payload
from poolrt.workers.ipc.channel import MalformedMessage, Message
from poolrt.workers.ipc.protocol import IN_FILE, Kind

from .creations import Creation, Creations
from .instructions import (
    RING_ENDS,
    CloseFiles,
    FindConstants,
    Forget,
    Instruction,
    LookedUp,
    LookUp,
    Lower,
    LoweredGraph,
    NoteCreated,
    PendingGraph,
    PrimitiveToLoad,
    Send,
)
from .jobs import Job, Model
from .leases import Leases
from .staging import Staging
from .worker_set import WorkerSet, arena_full

#: Loads that one client may have under way.
LOADS_LIMIT: Final = 64
#: Bytes of graphs that one client may have waiting until they are lowered.
GRAPHS_BYTES: Final = 128 * 1024 * 1024
#: Constants that the loads of one client that are under way may have, if there are several.
CONSTANTS_LIMIT: Final = 20_000
#: Characters of a graph's name that are kept, for errors.
NAME_LIMIT: Final = 200
#: Sources of an entry in reports. Of several loads that wait for one creation, the first has its source, the others
#: "waited", as has a load for which another pool was just creating: over all reports, "created" counts each creation once.
#: "derived" are made by the coordinator, of kernels that it has from other primitives.
SOURCES: Final = ("created", "waited", "derived", "memory", "files", "prebuilt", "redis")


@dataclass(slots=True, eq=False)
class Load:
    """One load under way. ``aside`` is True while the background thread keeps keys for it."""

    number: int
    client: int
    request: int
    name: str
    engines: list[str]
    graph: PendingGraph
    #: The priority of its runs.
    priority: int
    is_lowering: bool = False
    lowered: LoweredGraph | None = None
    entries: list[bytes | None] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0))
    #: The slot of each constant, or `IN_FILE`.
    final: list[int] = field(default_factory=list)
    #: Constants in files: those that are being looked for, those that a worker will write, descriptors of those found.
    sought: set[int] = field(default_factory=set)
    to_keep: set[int] = field(default_factory=set)
    files: dict[int, int] = field(default_factory=dict)
    model: Model | None = None
    granted: int = 0
    staging: Staging | None = None
    written: set[int] = field(default_factory=set)
    unsettled: int = 0
    aside: bool = False

    def is_staged(self, index: int) -> bool:
        """Whether a constant passes through staging, and a worker brings it to where it belongs."""
        return index in self.to_keep or (self.lowered is not None and self.lowered.constants[index].reorder is not None)

    @property
    def missing(self) -> int:
        """The number of primitives whose entry is still missing."""
        return self.entries.count(None)


class Loads:
    """All loads under way. ``done(model)`` receives a model that is ready, ``drop(model)`` one of a failed load.

    Large constants are shared with other processes of the node, in files that exist or that workers write, if the
    coordinator ``shares_constants`` and ``writes_constants``.
    """

    def __init__(
        self,
        worker_set: WorkerSet,
        creations: Creations,
        memory: Lru[str, bytes],
        leases: Leases,
        numbers: Iterator[int],
        out: list[Instruction],
        done: Callable[[Model], None],
        drop: Callable[[Model], None],
        shares_constants: bool = False,
        writes_constants: bool = False,
    ) -> None:
        self._shares_constants = shares_constants
        self._writes_constants = writes_constants
        self.under_way: dict[int, Load] = {}
        self._by_request: dict[tuple[int, int], Load] = {}
        self._targets: dict[str, list[Any]] = {}
        self._worker_set = worker_set
        self._creations = creations
        self._memory = memory
        self._leases = leases
        self._numbers = numbers
        self._out = out
        self._done = done
        self._drop = drop

    def start(
        self, client: int, request: int, name: str, engines: list[str], priority: int, graph: bytes | Payload
    ) -> None:
        """Start loading a client's graph, which names these engines. Raises PoolRefused if the request's number is in use."""
        if (client, request) in self._by_request:
            raise PoolRefused(f"request {request} is in use")
        load = Load(next(self._numbers), client, request, name[:NAME_LIMIT], [], PendingGraph(graph), priority)
        own = [other for other in self.under_way.values() if other.client == client]
        nbytes = sum(other.graph.nbytes for other in own if other.lowered is None) + len(graph)
        self.under_way[load.number] = self._by_request[client, request] = load
        if len(own) >= LOADS_LIMIT:
            self.fail(load.number, PoolRefused(f"{len(own)} loads of one client are under way already"))
        elif nbytes > GRAPHS_BYTES:
            text = f"graphs of one client that are not lowered yet have {nbytes} bytes, more than {GRAPHS_BYTES}"
            self.fail(load.number, PoolRefused(f"{text}: load fewer at a time"))
        else:
            self._probe(load, engines)

    def probed(self, job: Job, target: Any) -> None:
        """Take the target of an engine from a worker's answer."""
        load = self.under_way.get(job.load)
        if not isinstance(target, list):
            self.fail(job.load, GraphRefused(f"engine {job.engine} has no target"))
            return
        self._targets[job.engine] = target
        if load is not None and all(engine in self._targets for engine in load.engines):
            self._lower(load)

    def lowered(self, number: int, graph: LoweredGraph) -> None:
        """Take the plan of a graph: reserve its constants and look up its primitives."""
        load = self.under_way.get(number)
        if load is None:
            self._out.append(Forget(number))
            return
        load.lowered, load.aside = graph, True
        constants = sum(len(other.final) for other in self.under_way.values() if other.client == load.client)
        if constants and constants + len(graph.constants) > CONSTANTS_LIMIT:
            text = f"the loads of one client that are under way have more than {CONSTANTS_LIMIT} constants"
            self.fail(number, PoolRefused(f"{text}: load fewer models at a time"))
            return
        names = graph.names if self._shares_constants else ()
        load.sought = {index for index, name in enumerate(names) if name}
        load.final = [IN_FILE] * len(graph.constants)
        if not self._take_slots(load, [i for i in range(len(graph.constants)) if i not in load.sought]):
            return
        load.unsettled = len(graph.constants)
        if load.sought:
            self._out.append(self._find(load, sorted(load.sought)))
        load.entries = [self._memory.get(p.digest) for p in graph.primitives]
        load.counts["memory"] = sum(entry is not None for entry in load.entries)
        unknown = [i for i, entry in enumerate(load.entries) if entry is None]
        if unknown:
            self._out.append(LookUp(number, unknown))
        else:
            self._forget(load)
        self._advance(load)

    def looked_up(self, number: int, outcome: LookedUp) -> None:
        """Take the entries that the store has or that were derived; create the others."""
        load = self.under_way.get(number)
        if load is None or load.lowered is None:
            return
        self._forget(load)
        for index, primitive in enumerate(load.lowered.primitives):
            if index in outcome.found:
                entry, source = outcome.found[index]
                self._memory.put(primitive.digest, entry)
                self._fill(load, index, entry, source)
            elif load.entries[index] is None:
                self._creations.want(primitive, number, index, outcome.kernels.get(index, frozenset()))
        if load.missing:
            self.report_progress([number])
        self.schedule()
        self._advance(load)

    def on_creator_message(self, number: int, kind: Kind, message: Message) -> None:
        """Take a creator's answer. Raises MalformedMessage for anything else."""
        if kind is Kind.READY:
            self._creations.mark_ready(number)
        elif kind in (Kind.CREATED, Kind.BROKEN):
            creation = self._creations.finish(number, message[1])
            if creation is None:
                raise MalformedMessage(f"a creator answered creation {message[1]}, which it was not given")
            if kind is Kind.CREATED:
                self.created(creation, message[2], message[3])
            else:
                label, (cause, text, log) = creation.primitive.label, message[2:]
                for load, _ in creation.waiting:
                    self.fail(load, CreationFailed(cause, f"{label}: {text}", log))
        else:
            raise MalformedMessage(f"creators must not send {kind.name}")

    def take_ring_ends(self, primitive: PrimitiveToLoad, entry: bytes, kernels: frozenset[bytes]) -> None:
        """Take the compiled ends of rings from the store, or have them created if the entry is empty."""
        if entry:
            self._worker_set.rings.set_ends(entry)
        else:
            self._creations.want(primitive, RING_ENDS, 0, kernels)
            self.schedule()

    def created(self, creation: Creation, entry: bytes, source: str) -> None:
        """Give the entry of a finished creation to all loads that wait for it."""
        self._memory.put(creation.primitive.digest, entry)
        self._out.append(NoteCreated(entry))
        loads = dict.fromkeys(number for number, _ in creation.waiting)
        if RING_ENDS in loads:
            self._worker_set.rings.set_ends(entry)
        for number, index in creation.waiting:
            if number in self.under_way:
                self._fill(self.under_way[number], index, entry, source)
                source = "waited"
        self.report_progress(list(loads))
        for number in loads:
            if number in self.under_way:
                self._advance(self.under_way[number])

    def schedule(self) -> None:
        """Start waiting creations."""
        self.report_progress(list(dict.fromkeys(self._creations.schedule())))

    def written(self, client: int, request: int, constants: list[int]) -> None:
        """Take constants that a client has written into its slots. Raises PoolRefused for any other constant."""
        load = self._by_request.get((client, request))
        if load is None:
            return  # the load has failed meanwhile
        for index in constants:
            if load.lowered is None or index >= load.granted or index in load.written or index in load.files:
                raise PoolRefused(f"constant {index} has no slot to be written to")
            load.written.add(index)
            if not load.is_staged(index):
                load.unsettled -= 1
            elif load.model is not None:
                self._reorder(load, load.model, index)
        self._advance(load)

    def reordered(self, job: Job) -> None:
        """Count a constant that is in its final layout."""
        self._leases.end(job.holder)
        load = self.under_way.get(job.load)
        if load is None or load.lowered is None:
            return
        load.unsettled -= 1
        if load.staging is not None:
            load.staging.give(job.constant)
        self._advance(load)

    def constants_found(self, number: int, found: dict[int, int]) -> None:
        """Take the descriptors of constants in files; -1 for one that has none."""
        load = self.under_way.get(number)
        if load is None or load.lowered is None:
            opened = [descriptor for descriptor in found.values() if descriptor >= 0]
            if opened:
                self._out.append(CloseFiles(opened))
            return
        load.sought -= found.keys()
        for index, descriptor in found.items():
            if descriptor >= 0:
                load.files[index] = descriptor
                load.unsettled -= 1
                if index in load.written and load.staging is not None:
                    load.staging.give(index)
            elif index not in load.written and self._writes_constants:
                load.to_keep.add(index)
        missing = [
            i for i, descriptor in found.items() if descriptor < 0 and (i in load.written or i not in load.to_keep)
        ]
        load.to_keep -= set(missing)
        if not self._take_slots(load, missing):
            return
        if missing and load.model is not None:  # no worker could write these files
            self._worker_set.drop_model(load.model)  # workers have it without these slots
            for index in missing:
                self._reorder(load, load.model, index)
        self._advance(load)

    def kept(self, job: Job) -> None:
        """Look for the file of a constant that a worker has written, unless it could not."""
        self._leases.end(job.holder)
        load = self.under_way.get(job.load)
        if load is not None and load.lowered is not None:
            self._out.append(self._find(load, [job.constant]))

    def fail(self, number: int, error: PortableError) -> None:
        """End a load and send its client the error; that of the ends of rings is counted, and rings go on without."""
        if number == RING_ENDS:
            self._worker_set.rings.ends_failed += 1
        load = self.under_way.get(number)
        if load is not None:
            self._end(load)
            if load.model is not None:
                self._drop(load.model)
            else:
                self._leases.end(("model", number))
                if load.files:
                    self._out.append(CloseFiles([*load.files.values()]))
            self._out.append(Send(load.client, [Kind.FAILED, load.request, error.to_wire()]))

    def cancel(self, client: int, request: int) -> bool:
        """End a load at its client's request, and return whether it was under way; one that has ended stays as it is."""
        load = self._by_request.get((client, request))
        if load is not None:
            self.fail(load.number, PoolRefused(f"loading {load.name} was cancelled"))
        return load is not None

    def withdraw(self, client: int) -> None:
        """End all loads of a client."""
        for load in [load for load in self.under_way.values() if load.client == client]:
            self.fail(load.number, PoolRefused("the client has disconnected"))

    def report_progress(self, numbers: list[int]) -> None:
        """Send clients the progress of their loads."""
        for number in numbers:
            load = self.under_way.get(number)
            if load is not None:
                total = len(load.entries)
                names = self._creations.under_way(number)
                self._out.append(Send(load.client, [Kind.PROGRESS, load.request, total, total - load.missing, names]))

    def _probe(self, load: Load, engines: list[str]) -> None:
        """Ask a worker for the targets of the graph's engines that are not known yet."""
        try:
            load.engines = [engine for engine in require_engines(engines) if engine != "cpu"]
        except ValueError as error:
            self.fail(load.number, GraphRefused(f"graph {load.name!r}: {error}"))
            return
        unknown = [engine for engine in load.engines if engine not in self._targets]
        for engine in unknown:
            token = next(self._numbers)
            self._worker_set.submit(Job(Kind.PROBE, token, f"engine {engine}", load=load.number, engine=engine))
        if not unknown:
            self._lower(load)

    def _lower(self, load: Load) -> None:
        if not load.is_lowering:
            load.is_lowering = True
            targets = {engine: self._targets[engine] for engine in load.engines}
            self._out.append(Lower(load.number, load.client, load.name, load.graph, targets))

    def _fill(self, load: Load, index: int, entry: bytes, source: str) -> None:
        if load.entries[index] is None:
            load.entries[index] = entry
            load.counts[source if source in SOURCES else "redis"] += 1

    def _advance(self, load: Load) -> None:
        """Take the steps that have become possible: give out slots, make the model, reorder, finish."""
        lowered = load.lowered
        if lowered is None or not self._stage(load, lowered):
            return
        if load.model is None and not load.missing:
            entries = [entry for entry in load.entries if entry is not None]
            inputs, outputs = ([port[3] for port in ports] for ports in (lowered.inputs, lowered.outputs))
            descriptors = [primitive.descriptor for primitive in lowered.primitives]
            whole = lowered.steps, lowered.plan, entries, load.final, inputs, outputs, load.files, lowered.names
            load.model = Model(load.number, load.client, load.name, *whole, descriptors, lowered.calls, load.priority)
            for index in sorted(load.written):
                if load.is_staged(index):
                    self._reorder(load, load.model, index)
        if load.model is not None and not load.unsettled:
            self._end(load)
            self._done(load.model)
            report = {"primitives": {"total": len(load.entries), **load.counts}}
            ports = [lowered.inputs, lowered.outputs]
            self._out.append(Send(load.client, [Kind.LOADED, load.request, load.number, *ports, report]))

    def _stage(self, load: Load, lowered: LoweredGraph) -> bool:
        """Give out slots for constants as far as staging allows; return False if that fails the load."""
        if load.sought:
            return True  # which constants need a slot is not known yet
        if load.staging is None:
            raw = sum(c.raw_nbytes for index, c in enumerate(lowered.constants) if load.is_staged(index))
            load.staging = Staging(self._leases, ("load", load.number), raw)
        grants: list[list[int]] = []
        while load.granted < len(lowered.constants):
            constant = lowered.constants[load.granted]
            offset = load.final[load.granted]
            if load.granted in load.files:
                load.granted += 1
                continue
            if load.is_staged(load.granted):
                try:
                    staged = load.staging.take(load.granted, constant.raw_nbytes)
                except ArenaExhausted as error:
                    self.fail(load.number, arena_full(f"constant {load.granted} of {load.name}", error))
                    return False
                if staged is None:
                    break
                offset = staged.offset
            grants.append([load.granted, constant.value, offset])
            load.granted += 1
        if grants:
            self._out.append(Send(load.client, [Kind.STAGE, load.request, grants]))
        return True

    def _reorder(self, load: Load, model: Model, index: int) -> None:
        if load.staging is None:
            return  # no slot was given out
        token, staged = next(self._numbers), load.staging[index]
        kind = Kind.KEEP if index in load.to_keep else Kind.REORDER
        job = Job(kind, token, f"constant {index} of {load.name}", load=load.number, model=model, constant=index)
        # The job has its own leases: even if the load fails, these slots stay taken while a worker may write to them.
        job.inputs = [staged.offset]
        self._leases.share(staged.slot, job.holder)
        if kind is Kind.REORDER:
            job.outputs = [load.final[index]]
            self._leases.share(load.final[index], job.holder)
        self._worker_set.submit(job)

    def _find(self, load: Load, constants: list[int]) -> FindConstants:
        """Return the instruction to look for the files of some constants."""
        if load.lowered is None:
            return FindConstants(load.number, [])
        names, planned = load.lowered.names, load.lowered.constants
        return FindConstants(load.number, [(index, names[index], planned[index].nbytes) for index in constants])

    def _take_slots(self, load: Load, constants: list[int]) -> bool:
        """Take slots of the arena for some constants; return False if that fails the load."""
        if load.lowered is None:
            return False
        planned = load.lowered.constants
        try:
            offsets = self._leases.take([planned[index].nbytes for index in constants], ("model", load.number))
        except ArenaExhausted as error:
            self.fail(load.number, arena_full(f"constants of {load.name}", error))
            return False
        for index, offset in zip(constants, offsets, strict=True):
            load.final[index] = offset
        return True

    def _end(self, load: Load) -> None:
        load.graph.drop()
        del self.under_way[load.number]
        del self._by_request[load.client, load.request]
        self._creations.withdraw(load.number)
        self._leases.end(("load", load.number))
        self._forget(load)

    def _forget(self, load: Load) -> None:
        if load.aside:
            load.aside = False
            self._out.append(Forget(load.number))
