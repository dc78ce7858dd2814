"""One node of a model, as its operator reads it: operands, attributes, and errors for what is unsupported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass, replace
from poolrt.workers.desc import type_name

from ..builder import Graph
from ..errors import ModelError, UnsupportedNode
from ..graph_state import GraphState
from ..values import Value
from .bounds import Bounds
from .element_types import FLOATS
from .folding import MOST_DIMS, Array, Folding
from .model_file import onnx_package, tensor
from .patterns import Patterns
from .tensor_sequence import Item, TensorSequence
from .tensors import Operand, Tensors, dtype_of, shape_of

#: What an operator gives: its first result, or several.
Results: TypeAlias = "Operand | tuple[Operand | None, ...]"


@dataclass(frozen=True, slots=True)
class NodeCall:
    """A node with its operands (None for a missing optional one, and for the `sequences`, which have the same indices).

    ``outputs`` are the indices of the outputs that are read, of ``results`` in all.
    ``math`` computes with tensors and known arrays alike, ``folding`` with what is known while the model is loaded.
    ``inputs`` are the names of the model's inputs by value, ``patterns`` what is known of values that nodes before gave,
    ``bounds`` those whose size a run counts.
    """

    graph: Graph
    name: str
    label: str
    operator: str
    opset: int
    operands: tuple[Operand | None, ...]
    attrs: Mapping[str, Any]
    outputs: frozenset[int]
    results: int
    unique: Callable[[str], str]
    folding: Folding
    math: Tensors
    inputs: Mapping[int, str]
    patterns: Patterns
    bounds: Bounds
    sequences: Mapping[int, TensorSequence]

    def name_part(self, part: str) -> str:
        """Return a name for another graph node that this one needs."""
        return self.unique(f"{self.name}/{part}")

    def with_operands(self, *operands: Operand | None) -> NodeCall:
        """Return a node with the same attributes and other operands, for a part of this one."""
        return replace(self, operands=operands, name=self.name_part("inner"))

    def has(self, index: int) -> bool:
        """Return whether an operand is given."""
        return index < len(self.operands) and self.operands[index] is not None

    def item(self, index: int) -> Item | None:
        """Return an operand or sequence, None for one that is missing."""
        return self.sequences.get(index, self.operands[index])

    def items(self) -> list[Item | None]:
        """Return all operands and sequences."""
        return [self.item(index) for index in range(len(self.operands))]

    def sequence(self, index: int) -> TensorSequence:
        """Return an operand that is a sequence of tensors. Raises ModelError if it is none."""
        found = self.sequences.get(index)
        if found is None:
            raise self.malformed(f"input {index}: expect a sequence of tensors")
        return found

    def operand(self, index: int) -> Operand:
        """Return an operand. Raises ModelError if it is missing, or a sequence."""
        if index in self.sequences:
            raise self.malformed(f"input {index} is a sequence of tensors; expect a tensor")
        found = self.operands[index] if index < len(self.operands) else None
        if found is None:
            raise self.malformed(f"input {index} is missing")
        return found

    def tensor(self, index: int) -> Operand:
        """Return an operand as a tensor that has elements. Raises UnsupportedNode for one that has none."""
        found = self.operand(index)
        if 0 in found.shape:
            raise self.unsupported(f"input {index} has no elements: its shape is {shape_of(found)}")
        return found

    def real(self, index: int) -> Operand:
        """Return an operand of floating point numbers. Raises UnsupportedNode for other types."""
        found = self.tensor(index)
        if dtype_of(found) not in FLOATS:
            raise self.unsupported(f"input {index} is of type {dtype_of(found)}; expect floating point numbers")
        return found

    def optional(self, index: int) -> Operand | None:
        """Return an operand that may be missing."""
        return self.operand(index) if self.has(index) else None

    def operands_given(self) -> list[Operand]:
        """Return all operands, none of which may be missing."""
        return [self.operand(index) for index in range(len(self.operands))]

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of an operand."""
        return shape_of(self.operand(index))

    def known(self, index: int, what: str) -> Array:
        """Return an operand that is known while the model is loaded. Raises UnsupportedNode for a computed one."""
        found = self.operand(index)
        if isinstance(found, Value):
            asked = self.inputs_of(index)
            if asked:
                raise self.ask(what, asked)
            raise self.computed(f"{what} is computed by the model; it must be constant")
        return found

    def inputs_of(self, index: int) -> tuple[str, ...]:
        """Return which inputs a user may give while loading, so that an operand is known; empty if there are none."""
        found = self.operand(index)
        return tuple(self._inputs_of(found)) if isinstance(found, Value) else ()

    def ask(self, what: str, asked: Sequence[str]) -> UnsupportedNode:
        """Return the error for what is known only if some inputs are given while loading."""
        given = ", ".join(f"{name!r}: ..." for name in asked)
        words = " ".join(f"--value {name}=..." for name in asked)
        text = f"values={{{given}}}, or {words} on the command line"
        error = self.computed(f"{what}: give the input while loading: {text}")
        error.asked = tuple(asked)
        return error

    def _inputs_of(self, value: Value) -> list[str]:
        """Return the input that a value is, or those that it is computed from if all are such as shapes depend on; else none.

        These are integers, booleans, and single numbers.
        """
        if value.id in self.inputs:
            return [self.inputs[value.id]]
        state = cast("GraphState", value.owner)
        producers = {output: node for node in state.nodes for output in node.outputs}
        left, seen = [value.id], {value.id}
        found: list[str] = []
        while left:
            each = left.pop()
            if each in producers:
                left += [source for source in producers[each].inputs if source not in seen]
                seen.update(producers[each].inputs)
            elif each in self.inputs:
                if type_name(state.descs[each].dtype) in FLOATS and state.descs[each].elements > 1:
                    return []
                found.append(self.inputs[each])
        return sorted(found)

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
        """Return an attribute that is a number; ONNX's defaults are of float32, as attributes are."""
        usual = None if default is None else float(np.float32(default))
        return float(self._attribute(name, usual, (float, int), "a number"))

    def text(self, name: str, default: str) -> str:
        """Return an attribute that is text."""
        try:
            return bytes(self._attribute(name, default.encode(), bytes, "text")).decode()
        except UnicodeDecodeError as error:
            raise self.malformed(f"attribute {name}: expect UTF-8") from error

    def texts(self, name: str, default: Sequence[str]) -> list[str]:
        """Return an attribute that is a list of texts."""
        found = self._items(name, [each.encode() for each in default], bytes, "texts")
        try:
            return [bytes(each).decode() for each in found]
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

    def axis(self, ndims: int, default: int | None = None, name: str = "axis") -> int:
        """Return an attribute that is an axis of a rank, as 0..ndims-1."""
        found = self.integer(name, default)
        if not -ndims <= found < ndims:
            raise self.malformed(f"{name}: expect {-ndims}..{ndims - 1}, got {found}")
        return found % ndims

    def proto(self, name: str) -> Any:
        """Return an attribute that is a tensor."""
        return self._attribute(name, None, onnx_package().TensorProto, "a tensor")

    def graph_attribute(self, name: str) -> Any:
        """Return an attribute that is a graph."""
        return self._attribute(name, None, onnx_package().GraphProto, "a graph")

    def initializers(self, graph: Any) -> dict[str, Array]:
        """Return the constants of a graph in an attribute, by name."""
        return {each.name: tensor(each, None) for each in graph.initializer}

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

    def computed(self, reason: str) -> UnsupportedNode:
        """Return the error for a node that poolrt does not support as long as only a run knows a size or value."""
        error = self.unsupported(reason)
        error.is_computed = True
        return error

    def malformed(self, reason: str) -> ModelError:
        """Return the error for a node that is not valid ONNX."""
        return ModelError(f"node {self.label!r} ({self.operator}, opset {self.opset}): {reason}")


Operator: TypeAlias = Callable[[NodeCall], Results]
