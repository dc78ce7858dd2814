"""One node of a model, as its operator reads it: operands, attributes, and errors for what is unsupported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from ..builder import Graph
from ..errors import ModelError, UnsupportedNode
from ..values import Value
from .folding import MOST_DIMS, Array, Folding
from .model_file import onnx_package

#: A tensor of the graph, or an array that is known while the model is loaded.
Operand: TypeAlias = "Value | Array"


@dataclass(frozen=True, slots=True)
class NodeCall:
    """A node with its operands (None for a missing optional one); ``outputs`` are the indices of those read.

    ``folding`` computes what is known while the model is loaded.
    """

    graph: Graph
    name: str
    label: str
    operator: str
    opset: int
    operands: tuple[Operand | None, ...]
    attrs: Mapping[str, Any]
    outputs: frozenset[int]
    unique: Callable[[str], str]
    folding: Folding

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
        found = self.known(index, what)
        if found.dtype.kind not in "iu" or found.size > MOST_DIMS:
            raise self.malformed(f"{what}: expect at most {MOST_DIMS} integers, got {found.size} of type {found.dtype}")
        return tuple(found.reshape(-1).tolist())

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an attribute that is an integer; this and the methods below raise ModelError for other types.

        They raise it too for an attribute that is missing and has no default.
        """
        return int(self._attribute(name, default, int, "an integer"))

    def number(self, name: str, default: float | None = None) -> float:
        """Return an attribute that is a number."""
        return float(self._attribute(name, default, (float, int), "a number"))

    def text(self, name: str, default: str) -> str:
        """Return an attribute that is text."""
        try:
            return bytes(self._attribute(name, default.encode(), bytes, "text")).decode()
        except UnicodeDecodeError as error:
            raise self.malformed(f"attribute {name}: expect UTF-8") from error

    def integers(
        self, name: str, default: Sequence[int] | None = None, most: int | None = 2 * MOST_DIMS
    ) -> tuple[int, ...]:
        """Return an attribute of integers, of which there are ``most`` at most."""
        found = tuple(self._items(name, default, int, "integers"))
        if most is not None and len(found) > most:
            raise self.malformed(f"attribute {name}: expect at most {most} integers, got {len(found)}")
        return found

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return an attribute of numbers."""
        return tuple(self._items(name, None, (float, int), "numbers"))

    def proto(self, name: str) -> Any:
        """Return an attribute that is a tensor."""
        return self._attribute(name, None, onnx_package().TensorProto, "a tensor")

    def _attribute(self, name: str, default: object, kinds: Any, expected: str) -> Any:
        found = self.attrs.get(name, default)
        if found is None:
            raise self.malformed(f"attribute {name} is missing")
        if not isinstance(found, kinds):
            raise self.malformed(f"attribute {name}: expect {expected}, got {found!r:.60}")
        return found

    def _items(self, name: str, default: Sequence[Any] | None, kinds: Any, expected: str) -> Sequence[Any]:
        found = self._attribute(name, default, (list, tuple, range), f"a list of {expected}")
        if not all(isinstance(item, kinds) for item in found):
            raise self.malformed(f"attribute {name}: expect {expected}, got {found!r:.60}")
        return cast("Sequence[Any]", found)

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
