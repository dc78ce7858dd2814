"""One node of a model, as its operator reads it: operands, attributes, and errors for what is unsupported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..builder import Graph
from ..errors import ModelError, UnsupportedNode
from ..values import Value

Array: TypeAlias = NDArray[Any]
#: A tensor of the graph, or an array that is known while the model is loaded.
Operand: TypeAlias = "Value | Array"


@dataclass(frozen=True, slots=True)
class NodeCall:
    """A node with its operands (None for a missing optional one); ``outputs`` are the indices of those read."""

    graph: Graph
    name: str
    label: str
    operator: str
    opset: int
    operands: tuple[Operand | None, ...]
    attrs: Mapping[str, Any]
    outputs: frozenset[int]
    unique: Callable[[str], str]

    def name_part(self, part: str) -> str:
        """Return a name for another graph node that this one needs."""
        return self.unique(f"{self.name}/{part}")

    def has(self, index: int) -> bool:
        """Return whether an operand is given."""
        return index < len(self.operands) and self.operands[index] is not None

    def operand(self, index: int) -> Operand:
        """Return an operand. Raises ModelError if it is missing."""
        found = self.operands[index] if index < len(self.operands) else None
        if found is None:
            raise self.malformed(f"input {index} is missing")
        return found

    def tensor(self, index: int) -> Operand:
        """Return an operand that is a float32 tensor. Raises UnsupportedNode for other types."""
        found = self.operand(index)
        if isinstance(found, np.ndarray) and found.dtype != np.float32:
            raise self.unsupported(f"input {index} is of type {found.dtype}; only float32 is computed")
        return found

    def tensors(self) -> list[Operand]:
        """Return all operands, which are float32 tensors."""
        return [self.tensor(index) for index in range(len(self.operands))]

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of an operand."""
        return tuple(self.operand(index).shape)

    def known(self, index: int, what: str) -> Array:
        """Return an operand that is known while the model is loaded. Raises UnsupportedNode for a computed one."""
        found = self.operand(index)
        if isinstance(found, Value):
            raise self.unsupported(f"{what} is computed by the model; it must be constant")
        return found

    def known_integers(self, index: int, what: str) -> tuple[int, ...]:
        """Return an operand of integers that is known while the model is loaded."""
        return tuple(int(number) for number in self.known(index, what).reshape(-1))

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return an attribute of integers. Raises ModelError if it is missing and has no default."""
        found = self.attrs.get(name, default)
        if found is None:
            raise self.malformed(f"attribute {name} is missing")
        return tuple(int(number) for number in found)

    def axes(self, index: int) -> tuple[int, ...] | None:
        """Return the axes, an attribute until opset 12 and an operand since; None if there are none."""
        if "axes" in self.attrs:
            return self.integers("axes")
        return self.known_integers(index, "axes") if self.has(index) else None

    def only_output(self, extra: str) -> None:
        """Raise UnsupportedNode if an output after the first is read."""
        if any(index > 0 for index in self.outputs):
            raise self.unsupported(f"its output {extra} is used")

    def unsupported(self, reason: str) -> UnsupportedNode:
        """Return the error for a node that poolrt does not support."""
        return UnsupportedNode(self.label, self.operator, self.opset, reason)

    def malformed(self, reason: str) -> ModelError:
        """Return the error for a node that is not valid ONNX."""
        return ModelError(f"node {self.label!r} ({self.operator}, opset {self.opset}): {reason}")


Operator: TypeAlias = Callable[[NodeCall], Operand]
