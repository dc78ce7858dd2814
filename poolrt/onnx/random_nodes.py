"""Nodes that draw random numbers: a run computes them between plans, each from a stream of its own."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from poolrt.graph.onnx.element_types import array_type
from poolrt.graph.onnx.model_file import onnx_package
from poolrt.graph.onnx.operators.random_numbers import draws

from .courses import Compute
from .parts import Body, Part
from .random_streams import RandomStream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Attributes: TypeAlias = Mapping[str, Any]
    Start: TypeAlias = Callable[[Body, Sequence[str]], Compute]
    #: Takes a generator, attributes, the operand if there is one, and a type of floating point numbers.
    Draw: TypeAlias = Callable[[np.random.Generator, Attributes, Any, Any], Array]

#: TensorProto.DataType of results without the attribute ``dtype``; those of other operators have their operand's.
_USUAL: Final = {"Multinomial": 6, "RandomNormal": 1, "RandomUniform": 1}


def find_random_node(part: Part, start: Start, seed: int | None) -> RandomNode | None:
    """Return what computes the only node of a part, None if that draws nothing. An import has checked its attributes.

    ``start`` makes what computes outputs of a body; ``seed`` is that of the session.
    """
    node = part.only
    return RandomNode(part, node, start, seed) if node is not None and node.op_type in _DRAWS and draws(node) else None


class RandomNode:
    """Computes the result of a node that draws."""

    def __init__(self, part: Part, node: Any, start: Start, seed: int | None) -> None:
        body = part.body
        self._node = node
        self._constants = body.constants
        fixed = [name for name in node.input if body.maker.get(name) in body.fixed]
        self._fixed: Compute | None = start(body, fixed) if fixed else None
        self._attributes = {each.name: onnx_package().helper.get_attribute_value(each) for each in node.attribute}
        self._stream = RandomStream(self._seed(seed))

    def run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the result by name."""
        known = {**self._constants, **arrays, **(self._fixed({}) if self._fixed is not None else {})}
        operand = known[self._node.input[0]] if self._node.input else None
        number = self._attributes.get("dtype", _USUAL.get(self._node.op_type, 0))
        dtype = array_type(number) if operand is None or number else operand.dtype
        wide = np.float64 if dtype == np.float64 else np.float32
        draw = _DRAWS[self._node.op_type]
        with np.errstate(over="ignore"):
            found = self._stream.draw(lambda generator: draw(generator, self._attributes, operand, wide))
            return {self._node.output[0]: found.astype(dtype, copy=False)}

    def _seed(self, seed: int | None) -> list[int] | None:
        """Return the bits of the node's own seed, else the session's seed with a number for the name of the result."""
        if "seed" in self._attributes:
            return list(struct.pack("<f", self._attributes["seed"]))
        return None if seed is None else [seed % (1 << 64), zlib.crc32(self._node.output[0].encode())]


def _normal(generator: np.random.Generator, attributes: Attributes, operand: Any, wide: Any) -> Array:
    found = generator.standard_normal(_shape(attributes, operand), wide)
    return np.asarray(found * wide(attributes.get("scale", 1.0)) + wide(attributes.get("mean", 0.0)))


def _uniform(generator: np.random.Generator, attributes: Attributes, operand: Any, wide: Any) -> Array:
    low, high = attributes.get("low", 0.0), attributes.get("high", 1.0)
    found = generator.random(_shape(attributes, operand), wide)
    return np.asarray(found * wide(high - low) + wide(low))


def _shape(attributes: Attributes, operand: Any) -> tuple[int, ...]:
    return tuple(attributes["shape"]) if operand is None else operand.shape


def _bernoulli(generator: np.random.Generator, attributes: Attributes, operand: Any, wide: Any) -> Array:
    chances = operand.astype(np.float64)
    return np.asarray(generator.random(chances.shape) < chances)


def _multinomial(generator: np.random.Generator, attributes: Attributes, operand: Any, wide: Any) -> Array:
    rows = operand.astype(np.float64)
    most = rows.max(1, keepdims=True)
    sums = np.cumsum(np.exp(rows - most), 1)
    # A place is below 1, which the last class with a chance reaches: one without a chance is never chosen.
    sums /= sums[:, -1:]
    places = generator.random((len(rows), attributes.get("sample_size", 1)))
    chosen = [np.searchsorted(each, place, "right") for each, place in zip(sums, places, strict=True)]
    return np.asarray(np.minimum(np.stack(chosen), rows.shape[1] - 1))


_DRAWS: Final[Mapping[str, Draw]] = {
    "Bernoulli": _bernoulli,
    "Multinomial": _multinomial,
    "RandomNormal": _normal,
    "RandomNormalLike": _normal,
    "RandomUniform": _uniform,
    "RandomUniformLike": _uniform,
}
