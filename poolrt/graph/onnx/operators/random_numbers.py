"""Operators that draw random numbers: nodes are checked here, and sessions compute them, between plans.

A graph has no such operation, because it computes the same from the same inputs: its tensors are folded, and its runs repeated.
So each operator raises the error of a node that reads what only a run knows, and a session cuts the model there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from ...errors import UnsupportedNode
from ..call import NodeCall, Operator
from ..domains import ONNX_DOMAINS
from ..element_types import FLOATS, GRAPH_TYPES, LIMITS
from ..tensors import Operand, array_dtype, dtype_of


def draws(node: Any) -> bool:
    """Return whether a NodeProto draws random numbers, or a node of its branches does."""
    if node.op_type in OPERATORS and node.domain in ONNX_DOMAINS:
        return True
    return any(draws(inner) for each in node.attribute if each.HasField("g") for inner in each.g.node)


def _of_shape(call: NodeCall, low: str, high: str) -> Operand:
    """Check a node whose attributes have the shape of its result."""
    dtype = _checked(call, FLOATS, "float32", low, high)
    call.folding.book(call.integers("shape"), array_dtype(dtype))
    raise _drawn(call)


def _like(call: NodeCall, low: str, high: str) -> Operand:
    """Check a node whose result has the shape of its operand."""
    _checked(call, FLOATS, dtype_of(call.operand(0)), low, high)
    raise _drawn(call)


def normal(call: NodeCall) -> Operand:
    """Draw from a normal distribution."""
    return _of_shape(call, "mean", "scale")


def normal_like(call: NodeCall) -> Operand:
    """Draw from a normal distribution as many numbers as an operand has."""
    return _like(call, "mean", "scale")


def uniform(call: NodeCall) -> Operand:
    """Draw from a uniform distribution."""
    return _of_shape(call, "low", "high")


def uniform_like(call: NodeCall) -> Operand:
    """Draw from a uniform distribution as many numbers as an operand has."""
    return _like(call, "low", "high")


def bernoulli(call: NodeCall) -> Operand:
    """Draw 1 with the probability that each element is, else 0."""
    _checked(call, (*FLOATS, *LIMITS, "bool"), dtype_of(call.real(0)))
    raise _drawn(call)


def multinomial(call: NodeCall) -> Operand:
    """Draw classes, whose logarithms of probabilities are rows, less a number that is the same in a row."""
    _checked(call, ("int32", "int64"), "int32")
    if len(call.real(0).shape) != 2:
        raise call.malformed(f"input 0: expect rows of classes, got {len(call.shape(0))} dimensions")
    count = call.integer("sample_size", 1)
    if count < 1:
        raise call.malformed(f"sample_size: expect 1 at least, got {count}")
    call.folding.book((call.shape(0)[0], count), array_dtype("int64"))
    raise _drawn(call)


def _checked(call: NodeCall, types: Collection[str], usual: str, *numbers: str) -> str:
    """Return the data type of the result. Raises ModelError if an attribute is not valid."""
    for name in (*numbers, "seed"):
        call.number(name, 0.0)
    dtype = GRAPH_TYPES.get(call.integer("dtype"), "") if "dtype" in call.attrs else usual
    if dtype not in types:
        raise call.malformed(f"dtype: expect {', '.join(types)}, got {dtype or call.integer('dtype')}")
    return dtype


def _drawn(call: NodeCall) -> UnsupportedNode:
    return call.computed("a graph draws no numbers; sessions do: poolrt.onnx.InferenceSession")


OPERATORS: Final[Mapping[str, Operator]] = {
    "Bernoulli": bernoulli,
    "Multinomial": multinomial,
    "RandomNormal": normal,
    "RandomNormalLike": normal_like,
    "RandomUniform": uniform,
    "RandomUniformLike": uniform_like,
}
