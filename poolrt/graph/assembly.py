"""The growing contents of a graph: values, constants and nodes, checked as they are added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from . import shapes
from .constant import Constant, as_constant
from .errors import GraphError
from .ir import Attribute, Dims, GraphIR, Node
from .values import Operand, Value


@dataclass(slots=True)
class Assembly:
    """What a graph holds so far, in topological order."""

    dims: dict[int, Dims] = field(default_factory=dict)
    constants: dict[int, Constant] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _numbers: dict[str, int] = field(default_factory=dict)
    #: Arrays given so far, by identity: an array used twice is one constant. Holding it keeps its id its own.
    _given: dict[int, tuple[NDArray[np.generic], Value]] = field(default_factory=dict)

    def value(self, dims: Dims) -> Value:
        """Add a value of a shape."""
        value = Value(dims, "float32", len(self.dims), self)
        self.dims[value.id] = dims
        return value

    def constant(self, data: object) -> Value:
        """Add a constant; an array that was given before is the same one. Raises ValueError for what is no tensor."""
        known = self._given.get(id(data))
        if known is not None:
            return known[1]
        constant = as_constant(data)
        if 0 in constant.dims:
            raise ValueError(f"expect sizes of at least 1, got {constant.dims}")
        value = self.value(constant.dims)
        self.constants[value.id] = constant
        if isinstance(data, np.ndarray):
            self._given[id(data)] = (data, value)
        return value

    @contextmanager
    def making(self, kind: str, name: str | None) -> Iterator[Draft]:
        """Give a draft of a node; every ValueError in the block becomes a GraphError that names the node."""
        draft = Draft(self, kind, self._fresh(kind) if name is None else name)
        try:
            if draft.name in self._names:
                raise ValueError("name: there is a node of this name already")
            yield draft
        except GraphError:
            raise
        except ValueError as error:
            raise GraphError(f"{kind} {draft.name!r}: {error}") from error

    def take_name(self, name: str) -> None:
        """Mark a node's name as used."""
        self._names.add(name)

    def freeze(self, name: str, engine: str, inputs: dict[str, int], outputs: dict[str, int]) -> GraphIR:
        """Return what was built so far as immutable data."""
        return GraphIR(
            name,
            engine,
            dict(self.dims),
            tuple(inputs.items()),
            tuple(outputs.items()),
            dict(self.constants),
            tuple(self.nodes),
        )

    def _fresh(self, stem: str) -> str:
        while True:
            number = self._numbers.get(stem, 0)
            self._numbers[stem] = number + 1
            if f"{stem}_{number}" not in self._names:
                return f"{stem}_{number}"


@dataclass(frozen=True, slots=True)
class Draft:
    """A node in the making: turns operands into values, then adds the node and the views it needs."""

    assembly: Assembly
    kind: str
    name: str

    def operand(self, argument: str, given: Operand) -> Value:
        """Return the value of an operand; what is not a value becomes a constant."""
        if isinstance(given, Value):
            if given.owner is not self.assembly:
                raise ValueError(f"{argument}: expect a value of this graph, got one of another")
            return given
        try:
            return self.assembly.constant(given)
        except ValueError as error:
            raise ValueError(f"{argument}: {error}") from error

    def optional(self, argument: str, given: Operand | None) -> list[Value]:
        """Return the value of an operand that may be missing."""
        return [] if given is None else [self.operand(argument, given)]

    def many(self, argument: str, given: Sequence[Operand]) -> list[Value]:
        """Return the values of a list of operands."""
        return [self.operand(f"{argument}[{index}]", each) for index, each in enumerate(given)]

    def add(self, operands: Sequence[Value], **attrs: Attribute) -> Value:
        """Add the node itself."""
        dims = shapes.infer(self.kind, [operand.shape for operand in operands], attrs)
        return self._add(self.kind, self.name, operands, dims, attrs)

    def view(self, value: Value, shape: Sequence[int]) -> Value:
        """Reshape a value: as the node itself where that is a view, else as a node beside it."""
        dims = shapes.reshaped(value.shape, shape)
        own = self.kind in ("reshape", "squeeze", "unsqueeze")
        if dims == value.shape and not own:
            return value
        name = self.name if own else self.assembly._fresh(f"{self.name}/reshape")
        return self._add("reshape", name, [value], dims, {})

    def ranked(self, value: Value, ndims: int) -> Value:
        """Prepend dimensions of 1 up to a rank."""
        return self.view(value, (*(1,) * (ndims - value.ndim), *value.shape))

    def _add(self, kind: str, name: str, operands: Sequence[Value], dims: Dims, attrs: dict[str, Attribute]) -> Value:
        result = self.assembly.value(dims)
        self.assembly.nodes.append(Node(kind, name, tuple(operand.id for operand in operands), result.id, attrs))
        self.assembly.take_name(name)
        return result
