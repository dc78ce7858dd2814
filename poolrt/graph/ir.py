"""The graph as immutable data: what passes rewrite and what becomes the wire form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from .constant import Constant

Attribute: TypeAlias = "int | float | str | tuple[int, ...]"
Dims: TypeAlias = "tuple[int, ...]"


@dataclass(frozen=True, slots=True)
class PostOpUse:
    """A post-operation of a node: ``eltwise`` with its parameters, or ``binary`` with the value it combines with."""

    kind: str
    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0
    value: int | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One operation (or view) on values, with its post-operations."""

    kind: str
    name: str
    inputs: tuple[int, ...]
    output: int
    attrs: Mapping[str, Attribute] = field(default_factory=dict)
    post_ops: tuple[PostOpUse, ...] = ()

    def uses(self) -> tuple[int, ...]:
        """Return every value that the node reads, as often as it reads it."""
        return (*self.inputs, *(p.value for p in self.post_ops if p.value is not None))

    def permutation(self) -> tuple[int, ...]:
        """Return a transpose's ``perm``."""
        perm = self.attrs["perm"]
        if not isinstance(perm, tuple):
            raise TypeError(f"transpose {self.name!r}: perm is {perm!r}")
        return perm

    def number(self, name: str) -> float:
        """Return an attribute that is a number."""
        return float(self.attrs[name])  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class GraphIR:
    """A graph in topological order. ``values`` gives each value's dimensions (all are float32)."""

    name: str
    engine: str
    values: Mapping[int, Dims]
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    constants: Mapping[int, Constant]
    nodes: tuple[Node, ...]

    def producers(self) -> dict[int, Node]:
        """Return the node that makes each computed value."""
        return {node.output: node for node in self.nodes}

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
