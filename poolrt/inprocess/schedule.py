"""What one iteration of a lowered graph does in this process: which tensors it needs, and what is done in which order.

Pure. Tensors lie in the host's memory, which native kernels and most CPU devices work on; an OpenCL device that does not
has tensors of its own, and copies bring them there and back. Tensors that are never alive together share memory where
the plan puts them in one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from poolrt.graph.lowered_plan import LoweredPlan
from poolrt.workers.desc import MemoryDesc
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.plans.execution_plan import CrossEngineReorder, PlaceKind, Step
from poolrt.workers.plans.locations import Aliases, Location

#: The engine of tensors in the host's memory.
ON_HOST: Final = -1
#: The piece of a tensor that is no copy of a part.
WHOLE: Final = -1


class Tensor(NamedTuple):
    """Memory of an iteration: a place of the plan, on the host or on an engine by number.

    ``space`` is the engine whose workspace it is in, ``piece`` sets apart copies of parts of one place.
    """

    engine: int
    kind: PlaceKind
    value: int
    space: int = 0
    piece: int = WHOLE


@dataclass(frozen=True, slots=True)
class Argument:
    """An execution argument: the bytes of a tensor (its number in the schedule) from ``start`` on, read as ``desc``."""

    arg: int
    tensor: int
    start: int
    desc: MemoryDesc


@dataclass(frozen=True, slots=True)
class Execution:
    """A primitive on arguments. ``output`` is the name of the operation, unique in the schedule."""

    output: str
    engine: int
    primitive: PrimitiveDesc
    digest: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """``nbytes`` of a tensor, from ``start`` on, to the beginning of another; one of them at least is a device's."""

    output: str
    source: int
    start: int
    destination: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Tensors with their bytes, and what is done in order."""

    lowered: LoweredPlan
    tensors: tuple[tuple[Tensor, int], ...]
    steps: tuple[Execution | Copy, ...]


def scheduled(lowered: LoweredPlan, on_host: Sequence[bool]) -> Schedule:
    """Return the schedule of a plan; ``on_host`` says of each of its engines whether it works on the host's memory."""
    return _Scheduler(lowered, on_host).run()


class _Scheduler:
    def __init__(self, lowered: LoweredPlan, on_host: Sequence[bool]) -> None:
        self.lowered = lowered
        self.on_host = on_host
        self.numbers: dict[Tensor, int] = {}
        self.sizes: list[int] = []
        self.steps: list[Execution | Copy] = []
        self.aliases = Aliases()
        self.names: Counter[str] = Counter()

    def run(self) -> Schedule:
        plan = self.lowered.plan
        for kind, ports in ((PlaceKind.INPUT, plan.inputs), (PlaceKind.OUTPUT, plan.outputs)):
            for number, port in enumerate(ports):
                self._number(Tensor(ON_HOST, kind, number), port.nbytes)
        for number, step in enumerate(plan.steps):
            if isinstance(step, CrossEngineReorder):
                self._cross(step, number)
            else:
                self._execute(step, number)
        # What a device takes and gives crosses at the beginning and at the end.
        arriving, leaving = [], []
        for tensor, number in self._of_devices(PlaceKind.INPUT):
            on_host, port = self.numbers[tensor._replace(engine=ON_HOST)], plan.inputs[tensor.value]
            arriving.append(Copy(self._once(f"input {port.name}"), on_host, 0, number, port.nbytes))
        for tensor, number in self._of_devices(PlaceKind.OUTPUT):
            on_host, port = self.numbers[tensor._replace(engine=ON_HOST)], plan.outputs[tensor.value]
            leaving.append(Copy(self._once(f"output {port.name}"), number, 0, on_host, port.nbytes))
        tensors = zip(self.numbers, self.sizes, strict=True)
        return Schedule(self.lowered, tuple(tensors), (*arriving, *self.steps, *leaving))

    def _of_devices(self, kind: PlaceKind) -> list[tuple[Tensor, int]]:
        """Return what devices have of a kind, but for copies of parts."""
        return [
            (tensor, number)
            for tensor, number in self.numbers.items()
            if tensor.engine != ON_HOST and tensor.kind is kind and tensor.piece == WHOLE
        ]

    def _execute(self, step: Step, number: int) -> None:
        engine = self.lowered.plan.primitives[step.primitive]
        pd = self.lowered.primitives[step.primitive]
        forms = pd.memories()
        arguments = []
        for arg, place in step.args:
            desc = forms[arg]
            location = self.aliases.locate(place, engine, number)
            tensor = self._tensor(location, engine, location.start + desc.nbytes)
            start = location.start
            if start and not self.on_host[engine]:
                # A device's buffers begin where the device wants: the view is read from a copy.
                piece = self._number(
                    Tensor(engine, location.kind, location.value, engine, len(self.steps)), desc.nbytes
                )
                self.steps.append(Copy(self._once(f"part for {step.name}"), tensor, start, piece, desc.nbytes))
                tensor, start = piece, 0
            arguments.append(Argument(arg, tensor, start, desc))
        digest = self.lowered.keys[step.primitive].digest
        self.steps.append(Execution(self._once(step.name), engine, pd, digest, tuple(arguments)))

    def _cross(self, step: CrossEngineReorder, number: int) -> None:
        source = self.aliases.locate(step.source, step.source_engine, number)
        ends = (step.source_engine, step.destination_engine)
        if all(self.on_host[engine] for engine in ends):
            self.aliases.add(step, source)
            return
        given = self._tensor(source, ends[0], source.start + step.nbytes)
        place = step.destination
        taken = self._tensor(Location(ends[1], place.kind, place.value, 0), ends[1], step.nbytes)
        self.steps.append(Copy(self._once(step.name), given, source.start, taken, step.nbytes))

    def _once(self, name: str) -> str:
        """Return a name that no step has yet."""
        self.names[name] += 1
        return name if self.names[name] == 1 else f"{name} ({self.names[name]})"

    def _tensor(self, location: Location, engine: int, nbytes: int) -> int:
        """Return the number of the tensor at a location as an engine reads it, which has at least so many bytes."""
        space = location.owner if location.kind is PlaceKind.WORK else 0
        return self._number(
            Tensor(ON_HOST if self.on_host[engine] else engine, location.kind, location.value, space), nbytes
        )

    def _number(self, tensor: Tensor, nbytes: int) -> int:
        number = self.numbers.setdefault(tensor, len(self.numbers))
        if number == len(self.sizes):
            self.sizes.append(0)
        self.sizes[number] = max(self.sizes[number], nbytes)
        return number
