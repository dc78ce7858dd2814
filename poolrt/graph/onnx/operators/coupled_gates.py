"""LSTM whose forget gates are what its input gates leave: ONNX's ``input_forget``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ..call import NodeCall
from ..tensors import Operand, shape_of
from .activations import Activation

#: Operand -> how often it has gates side by side, and how many, in ONNX's order (i, o, f, c; of peepholes i, o, f).
_GATES: Final = {1: (1, 4), 2: (1, 4), 3: (2, 4), 7: (1, 3)}


def can_couple(functions: Sequence[Activation]) -> bool:
    """Return whether 1 - f(x) is f(-x) for the function of gates."""
    gate = functions[0]
    return gate.name == "logistic" or (gate.name in ("hardsigmoid", "linear") and gate.beta == 0.5)


def with_forget_gates(call: NodeCall) -> NodeCall:
    """Return an LSTM of the usual kind, whose forget gates have the negative weights, biases and peepholes of input gates."""
    attrs = {name: value for name, value in call.attrs.items() if name != "input_forget"}
    operands = [_coupled(call, index) if index in _GATES else call.optional(index) for index in range(8)]
    return replace(call.with_operands(*operands), attrs=attrs, name=call.name)


def _coupled(call: NodeCall, index: int) -> Operand | None:
    """Return an operand with other numbers for the forget gates."""
    found = call.optional(index)
    if found is None:
        return None
    m, dims, (often, gates) = call.math, shape_of(found), _GATES[index]
    if len(dims) < 2 or dims[1] % (often * gates):
        raise call.malformed(f"operand {index} of shape {dims} does not fit {gates} gates")
    apart = m.reshape(found, (dims[0], often, gates, dims[1] // (often * gates), *dims[2:]))
    before, opened, behind = (
        m.slice(apart, [start], [end], [2], [1]) for start, end in ((0, 2), (0, 1), (gates - 1, gates))
    )
    parts = [before, m.binary(m.number(0, opened), opened, "sub"), *([behind] if gates > 3 else [])]
    return m.reshape(m.concat(parts, 2), dims)
