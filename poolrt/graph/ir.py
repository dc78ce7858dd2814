"""The graph as immutable data: what passes rewrite and what becomes the wire form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from poolrt.workers.desc import MemoryDesc

from .constant import Constant

Attribute: TypeAlias = "int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]"


@dataclass(frozen=True, slots=True)
class PostOpUse:
    """A post-operation of a node: ``eltwise`` with its parameters, or ``binary`` with the value it combines with."""

    kind: str
    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0
    value: int | None = None


@dataclass(frozen=True, slots=True)
class QuantisationUse:
    """``scales`` or ``zero_points`` of a node's argument: the value that holds them, one for each index under the mask."""

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

    def uses(self) -> tuple[int, ...]:
        """Return every value that the node reads, as often as it reads it."""
        operands = (p.value for p in self.post_ops if p.value is not None)
        return (*self.inputs, *operands, *(q.value for q in self.quantisation))

    def permutation(self) -> tuple[int, ...]:
        """Return a transpose's ``perm``."""
        return self.integers("perm")

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
class GraphIR:
    """A graph in topological order. ``values`` gives each value's dimensions and data type, row-major."""

    name: str
    engine: str
    values: Mapping[int, MemoryDesc]
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    constants: Mapping[int, Constant]
    nodes: tuple[Node, ...]

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
