"""The graph as immutable data: passes rewrite it, and it is lowered to a plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.workers.desc import MemoryDesc, PrimitiveAttr, Quantisation
from poolrt.workers.desc.quantisation import KINDS

if TYPE_CHECKING:
    # It imports NumPy, which the coordinator does without.
    from .constant import Constant

#: Largest tensor, in bytes: a process can address no larger one.
MAX_TENSOR: Final = 1 << 47
Attribute: TypeAlias = "int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]"


@dataclass(frozen=True, slots=True)
class PostOpUse:
    """A post-operation of a node: ``eltwise`` with its parameters, or ``binary`` with the value it combines with."""

    kind: str
    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0
    value: int | None = None

    def attributes(self) -> dict[str, Attribute]:
        """Return the attributes of a node that does the same."""
        numbers = {"alpha": self.alpha, "beta": self.beta} if self.kind == "eltwise" else {}
        return {"algorithm": self.algorithm, **numbers}


@dataclass(frozen=True, slots=True)
class QuantisationUse:
    """``scales`` or ``zero_points`` of a node's argument: a value with one number for each index under the mask."""

    kind: str
    arg: int
    mask: int
    value: int


@dataclass(frozen=True, slots=True)
class Node:
    """One operation (or view) on values, with its attributes and post-operations.

    Operands and results are in the order of oneDNN's numbers of execution arguments. An empty ``engine`` is the graph's;
    the name of the implementation begins with ``implementation``.
    """

    kind: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: Mapping[str, Attribute] = field(default_factory=dict)
    post_ops: tuple[PostOpUse, ...] = ()
    quantisation: tuple[QuantisationUse, ...] = ()
    engine: str = ""
    implementation: str = ""

    @property
    def output(self) -> int:
        """The first result, which most operations have alone."""
        return self.outputs[0]

    @property
    def label(self) -> str:
        """The name for errors; that of a call has the name of its function too."""
        return f"{self.name} ({self.attrs['function']})" if self.kind == "call" else self.name

    def uses(self) -> tuple[int, ...]:
        """Return every value that the node reads, once for each read."""
        if not (self.post_ops or self.quantisation):
            return self.inputs
        operands = (p.value for p in self.post_ops if p.value is not None)
        return (*self.inputs, *operands, *(q.value for q in self.quantisation))

    def quantisation_attr(self) -> PrimitiveAttr:
        """Return scales and zero points, which are given when a primitive is executed."""
        scales, zero_points = (
            tuple(Quantisation(use.arg, use.mask) for use in self.quantisation if use.kind == kind) for kind in KINDS
        )
        return PrimitiveAttr((), scales, zero_points)

    def check_quantisation(self, memories: dict[int, MemoryDesc], values: Mapping[int, MemoryDesc]) -> None:
        """Raise ValueError unless scales and zero points have the shapes that the arguments in ``memories`` need."""
        extra = self.quantisation_attr().memories(memories) if self.quantisation else {}
        for use in self.quantisation:
            wanted, given = extra[KINDS[use.kind].argument(use.arg)].dims, values[use.value].dims
            if given != wanted:
                raise ValueError(f"{use.kind}: expect {wanted} for argument {use.arg}, got {given}")

    def integers(self, name: str) -> tuple[int, ...]:
        """Return an attribute that is a list of integers."""
        found = self.attrs[name]
        if not isinstance(found, tuple):
            raise TypeError(f"{self.kind} {self.name!r}: {name} is {found!r}")
        return tuple(int(each) for each in found)

    def number(self, name: str) -> float:
        """Return an attribute that is a number."""
        return float(self.attrs[name])  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class TypedGraph:
    """A graph in topological order. ``values`` are row-major, ``constants`` are those whose data is known.

    ``fpmath_mode`` is that of the attributes of its products of f32.
    """

    name: str
    engine: str
    values: Mapping[int, MemoryDesc]
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    constants: Collection[int]
    nodes: tuple[Node, ...]
    fpmath_mode: str = "strict"


@dataclass(frozen=True, slots=True)
class GraphIR(TypedGraph):
    """A graph with the data of its constants."""

    constants: Mapping[int, Constant]

    def readers(self) -> dict[int, list[Node]]:
        """Return the nodes that read each value, once for each time they read it."""
        found: dict[int, list[Node]] = {value: [] for value in self.values}
        for node in self.nodes:
            for value in node.uses():
                found[value].append(node)
        return found

    def output_values(self) -> frozenset[int]:
        """Return the values that leave the graph."""
        return frozenset(value for _, value in self.outputs)
