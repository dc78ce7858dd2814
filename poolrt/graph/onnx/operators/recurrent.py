"""Recurrent networks: ONNX's weights, biases and gates in the order and layout of the operations here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ...values import Value
from ..call import NodeCall, Operator
from ..tensors import Operand
from .activations import Activation, activations_of
from .coupled_gates import can_couple, with_forget_gates
from .directions import of_direction
from .uneven_sequences import are_uneven, run_uneven
from .unrolled_lstm import unrolled_lstm

_DIRECTIONS: Final = {
    "forward": "left2right", "reverse": "right2left", "bidirectional": "bidirectional_concat",
}  # fmt: skip
#: Gates i, f and o by their number in ONNX's peepholes (i, o, f).
_PEEPHOLES: Final = (0, 2, 1)


def recurrent(kind: str, order: Sequence[int], states: int, activations: Sequence[str]) -> Operator:
    """Return the operator of a cell; ``order`` has for each gate here the number that ONNX gives it."""

    def operator(call: NodeCall) -> tuple[Operand | None, ...]:
        direction = call.text("direction", "forward")
        if direction not in _DIRECTIONS:
            raise call.malformed(f"unknown direction {direction!r}")
        if are_uneven(call):
            return run_uneven(call, operator, kind, activations)
        functions = activations_of(call, activations, 2 if direction == "bidirectional" else 1)
        if call.integer("input_forget", 0):
            if kind != "lstm":
                raise call.malformed("input_forget is for LSTM")
            if not all(map(can_couple, functions)):
                return unrolled_lstm(call)
            call = with_forget_gates(call)
        if len(set(functions)) == 1:
            return run(call, direction, functions[0])
        parts = [
            run(_apart(call, number), name, functions[number]) for number, name in enumerate(("forward", "reverse"))
        ]
        axes = (2, *[1] * states) if call.integer("layout", 0) else (1, *[0] * states)
        return tuple(
            call.math.concat(list(both), axis) for both, axis in zip(zip(*parts, strict=True), axes, strict=True)
        )

    def run(call: NodeCall, direction: str, functions: Sequence[Activation]) -> tuple[Operand, ...]:
        """Run directions that have the same functions."""
        count, gates = 2 if direction == "bidirectional" else 1, len(order)
        m, layout = call.math, call.integer("layout", 0)
        source, wide, deep = (call.real(index) for index in range(3))
        if len(source.shape) != 3 or len(wide.shape) != 3 or wide.shape[1] % gates:
            raise call.malformed(f"shapes {tuple(source.shape)} and {tuple(wide.shape)} do not fit {gates} gates")
        hidden = wide.shape[1] // gates
        if layout:
            source = m.transpose(source, (1, 0, 2))
        batch = source.shape[1]

        def weights(operand: Operand) -> Operand:
            apart = m.reshape(operand, (1, count, gates, hidden, operand.shape[-1]))
            return m.transpose(_reordered(call, apart, order, 2), (0, 1, 4, 2, 3))

        initial = []
        for index in range(5, 5 + states):
            state = call.optional(index)
            if state is not None:
                state = m.transpose(state, (1, 0, 2)) if layout else state
                initial.append(m.reshape(state, (1, count, batch, hidden)))
        if len(initial) not in (0, states):
            initial = _complete(call, initial, (1, count, batch, hidden), source)
        clip = call.number("clip", 0.0)
        if not clip >= 0:
            raise call.malformed(f"clip: expect 0 or more, got {clip}")
        options: dict[str, Any] = {"direction": _DIRECTIONS[direction], "clip": clip, "name": call.name}
        options |= _vanilla(call, functions[0]) if kind == "rnn" else _gated(functions)
        reset = kind == "gru" and bool(call.integer("linear_before_reset", 0))
        if kind == "gru":
            options["linear_before_reset"] = reset
        if kind == "lstm" and has_peepholes(call):
            seen = m.reshape(call.real(7), (1, count, 3, hidden))
            options["weights_peephole"] = _reordered(call, seen, _PEEPHOLES, 2)
        bias = _bias(call, count, gates, hidden, order, reset)
        add: Callable[..., tuple[Operand, ...]] = getattr(call.graph, kind)
        found = add(m.value(source), weights(wide), weights(deep), bias, *initial, **options)
        steps = source.shape[0]
        result = m.transpose(m.reshape(found[0], (steps, batch, count, hidden)), (0, 2, 1, 3))
        last = [m.reshape(each, (count, batch, hidden)) for each in found[1 : 1 + states]]
        if layout:
            result = m.transpose(result, (2, 0, 1, 3))
            last = [m.transpose(each, (1, 0, 2)) for each in last]
        return (result, *last)

    return operator


def _vanilla(call: NodeCall, function: Activation) -> dict[str, Any]:
    """Return the options of vanilla cells. Raises UnsupportedNode for functions that they have not."""
    if function.name not in ("tanh", "relu", "logistic"):
        raise call.unsupported(f"activation {function.given} is not supported")
    return {"activation": function.name, "alpha": function.alpha}


def _gated(functions: Sequence[Activation]) -> dict[str, Any]:
    """Return the options of cells with gates."""
    return {
        "activations": [each.name for each in functions],
        "alphas": [each.alpha for each in functions],
        "betas": [each.beta for each in functions],
    }


def _apart(call: NodeCall, number: int) -> NodeCall:
    """Return a node with the operands of one direction."""
    of_states = 1 if call.integer("layout", 0) else 0
    weights, states = (
        [of_direction(call, index, number, axis) for index in indices]
        for indices, axis in (((1, 2, 3), 0), ((5, 6), of_states))
    )
    return call.with_operands(call.operand(0), *weights, None, *states, of_direction(call, 7, number))


def has_peepholes(call: NodeCall) -> bool:
    """Return whether gates of an LSTM see its cell state."""
    peepholes = call.optional(7)
    return peepholes is not None and (isinstance(peepholes, Value) or bool(peepholes.any()))


def _reordered(call: NodeCall, operand: Operand, order: Sequence[int], axis: int) -> Operand:
    """Return the slices along an axis in an order."""
    if list(order) == sorted(order):
        return operand
    parts = [call.math.slice(operand, [number], [number + 1], [axis], [1]) for number in order]
    return call.math.concat(parts, axis)


def _complete(call: NodeCall, initial: list[Operand], dims: Sequence[int], like: Operand) -> list[Operand]:
    """Return both initial states, zeros for the one that is missing."""
    zeros = call.math.expand(call.math.reshape(call.math.number(0, like), (1,) * len(dims)), dims)
    return [*initial, zeros] if call.has(5) else [zeros, *initial]


def _bias(call: NodeCall, count: int, gates: int, hidden: int, order: Sequence[int], reset: bool) -> Operand | None:
    """Return the sum of both biases; with ``reset`` the last gate keeps them apart, in a row more."""
    given = call.optional(3)
    if given is None:
        return None
    m = call.math
    both = _reordered(call, m.reshape(given, (1, count, 2, gates, hidden)), order, 3)
    first, second = (
        m.reshape(m.slice(both, [number], [number + 1], [2], [1]), (1, count, gates, hidden)) for number in range(2)
    )
    if not reset:
        return m.binary(first, second, "add")
    kept = m.binary(m.slice(first, [0], [gates - 1], [2], [1]), m.slice(second, [0], [gates - 1], [2], [1]), "add")
    apart = [m.slice(each, [gates - 1], [gates], [2], [1]) for each in (first, second)]
    return m.concat([kept, *apart], 2)


OPERATORS: Final[Mapping[str, Operator]] = {
    "RNN": recurrent("rnn", (0,), 1, ("Tanh",)),
    # Gates of ONNX: i, o, f, c; here: i, f, c, o.
    "LSTM": recurrent("lstm", (0, 2, 3, 1), 2, ("Sigmoid", "Tanh", "Tanh")),
    "GRU": recurrent("gru", (0, 1, 2), 1, ("Sigmoid", "Tanh")),
}
