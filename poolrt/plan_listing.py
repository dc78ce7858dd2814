"""The steps of a model, as people read them: implementations, engines, layouts, and inserted reorders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from poolrt.cachestore.deferred_dataclass import dataclass, replace
from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr, op_from_wire
from poolrt.workers.desc.args import argument_name
from poolrt.workers.desc.codec import decode, unpack
from poolrt.workers.implementations.contract import REFERENCE
from poolrt.workers.plans.execution_plan import CrossEngineReorder, ExecutionPlan, Place, PlaceKind, Step

if TYPE_CHECKING:
    from poolrt.workers.implementations.primitive_desc import PrimitiveDesc

    from .graph.lowered_plan import LoweredPlan

_CROSS_ENGINE: Final = "cross-engine reorder"


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """An operand or result of a step: its argument, data type, layout and place.

    ``where`` is ``input``, ``output`` or ``constant`` with its number, or empty for an intermediate result. ``step`` is the
    number of the step that wrote it, for an operand that a step wrote.
    """

    argument: str
    dtype: str
    layout: str
    dims: tuple[int, ...]
    where: str
    step: int | None = None

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.argument} {self.dtype}:{self.layout}:{'x'.join(map(str, self.dims))}{place}"


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step: the operation (``cross-engine reorder`` between engines), its implementation and engine.

    ``nested`` are the implementations of the primitives nested in it, to any depth.
    """

    name: str
    operation: str
    implementation: str
    engine: str
    operands: tuple[PlannedTensor, ...] = ()
    results: tuple[PlannedTensor, ...] = ()
    nested: tuple[str, ...] = ()

    @property
    def is_reference(self) -> bool:
        """Whether a reference, which accepts everything and is slow, computes it, or a part of it."""
        return any(name.startswith(REFERENCE) for name in (self.implementation, *self.nested))

    def __str__(self) -> str:
        tensors = [", ".join(map(str, each)) for each in (self.operands, self.results)]
        what = f"{self.operation} {self.implementation}".rstrip()
        return f"{self.name}: {what} on {self.engine}" + (f": {' -> '.join(tensors)}" if self.results else "")


@dataclass(frozen=True, slots=True)
class PlanListing:
    """The steps of every run, and the reorders of constants, which run once, when the model is loaded."""

    steps: tuple[PlannedStep, ...]
    constants: tuple[PlannedStep, ...]

    @property
    def reorders(self) -> int:
        """The number of reorders in every run."""
        return sum(step.operation == "reorder" for step in self.steps)

    @property
    def cross_engine_reorders(self) -> int:
        """The number of reorders between engines in every run."""
        return sum(step.operation == _CROSS_ENGINE for step in self.steps)

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.constants, *self.steps)))

    @classmethod
    def from_wire(cls, packed: bytes, descriptors: list[list[Any]]) -> PlanListing:
        """Read a plan and the descriptors of its primitives. Raises ValueError if they are malformed."""
        return cls._of(unpack(ExecutionPlan, packed), [_Primitive.from_wire(wire) for wire in descriptors])

    @classmethod
    def of_lowered(cls, lowered: LoweredPlan) -> PlanListing:
        """Return the steps of a plan that is not loaded."""
        return cls._of(lowered.plan, list(map(_Primitive.of, lowered.primitives)))

    @classmethod
    def _of(cls, plan: ExecutionPlan, primitives: list[_Primitive]) -> PlanListing:
        steps = []
        #: The last step that wrote each place, on its engine if it is in a workspace.
        written: dict[tuple[PlaceKind, int, int], int] = {}
        for number, step in enumerate(plan.steps):
            if isinstance(step, CrossEngineReorder):
                steps.append(_describe_cross_engine(step, plan))
                written[_home(step.destination, step.destination_engine)] = number
            else:
                primitive, home = primitives[step.primitive], plan.primitives[step.primitive]
                found = primitive.describe_step(step, plan, written)
                steps.append(replace(found, nested=tuple(_nested(step.primitive, plan, primitives))))
                written.update({_home(place, home): number for arg, place in step.args if arg in primitive.written})
        constants = []
        for number, constant in enumerate(plan.constants):
            if constant.reorder is not None:
                primitive, engine = primitives[constant.reorder], plan.engines[plan.primitives[constant.reorder]]
                constants.append(primitive.describe_reorder(number, engine))
        return cls(tuple(steps), tuple(constants))


@dataclass(frozen=True, slots=True)
class _Primitive:
    """A primitive: its operation, implementation, arguments, and those that it writes."""

    operation: str
    implementation: str
    memories: dict[int, MemoryDesc]
    written: tuple[int, ...]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> _Primitive:
        op, attr = op_from_wire(wire[0]), decode(PrimitiveAttr, wire[1])
        described = op.memories()
        return cls(op.kind, str(wire[3]), {**described, **attr.memories(described)}, op.outputs())

    @classmethod
    def of(cls, primitive: PrimitiveDesc) -> _Primitive:
        return cls(primitive.op.kind, primitive.impl_name(), primitive.memories(), primitive.op.outputs())

    def describe_step(
        self, step: Step, plan: ExecutionPlan, written: Mapping[tuple[PlaceKind, int, int], int]
    ) -> PlannedStep:
        """Describe a step that executes it; ``written`` has the last step that wrote each place."""
        home = plan.primitives[step.primitive]
        operands: list[PlannedTensor] = []
        results: list[PlannedTensor] = []
        for arg, place in step.args:
            where = "" if place.kind is PlaceKind.WORK else f"{place.kind.name.lower()} {place.value}"
            if arg in self.written:
                results.append(self._tensor(arg, where))
            else:
                operands.append(self._tensor(arg, where, written.get(_home(place, home))))
        engine = plan.engines[plan.primitives[step.primitive]]
        parts = tuple(operands), tuple(results)
        return PlannedStep(step.name, self.operation, self.implementation, engine, *parts)

    def describe_reorder(self, number: int, engine: str) -> PlannedStep:
        """Describe the reorder of a constant into its layout."""
        operands = (self._tensor(Arg.SRC, ""),)
        results = (self._tensor(Arg.DST, f"constant {number}"),)
        return PlannedStep(f"constant {number}", self.operation, self.implementation, engine, operands, results)

    def _tensor(self, arg: int, where: str, step: int | None = None) -> PlannedTensor:
        desc = self.memories[arg]
        layout = "s" + "x".join(map(str, desc.strides)) if desc.strides else desc.tag
        return PlannedTensor(argument_name(arg, arg in self.written), desc.dtype, layout, desc.dims, where, step)


def _nested(number: int, plan: ExecutionPlan, primitives: Sequence[_Primitive]) -> Iterator[str]:
    for inner in plan.nested_in(number):
        yield primitives[inner].implementation
        yield from _nested(inner, plan, primitives)


def _home(place: Place, engine: int) -> tuple[PlaceKind, int, int]:
    return place.kind, place.value, engine if place.kind is PlaceKind.WORK else 0


def _describe_cross_engine(step: CrossEngineReorder, plan: ExecutionPlan) -> PlannedStep:
    engines = f"{plan.engines[step.source_engine]} -> {plan.engines[step.destination_engine]}"
    return PlannedStep(step.name, _CROSS_ENGINE, "", engines)
