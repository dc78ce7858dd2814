"""LSTM with options or products that the operation of a graph does not have: operations for each element of the sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from ..call import NodeCall
from ..tensors import Operand, Tensors, shape_of
from .directions import of_direction

_Function: TypeAlias = "Callable[[Tensors, Operand], Operand]"
Product: TypeAlias = "Callable[[Operand], Operand]"
#: Returns the product by the weights of a direction, those of operand 1 or the recurrent ones of operand 2, with columns in the
#: order of `ORDER`.
Products: TypeAlias = "Callable[[int, int], Product]"
#: Elements of a sequence: each takes about ten operations.
MOST_STEPS: Final = 512
#: Gates i, f, o, c by their number in ONNX's order (i, o, f, c): those of one function are side by side.
ORDER: Final = (0, 2, 1, 3)
_FUNCTIONS: Final[dict[str, _Function]] = {
    "Sigmoid": lambda m, x: m.eltwise(x, "logistic"),
    "Tanh": lambda m, x: m.eltwise(x, "tanh"),
    "Relu": lambda m, x: m.eltwise(x, "relu"),
}


def unrolled_lstm(call: NodeCall) -> tuple[Operand | None, ...]:
    """Compute ``input_forget`` with gates of any of three activations; sequences have one length."""
    m = call.math
    directions, gates, _ = shape_of(call.real(1))

    def products(weights: int, direction: int) -> Product:
        found = m.slice(call.real(weights), [direction], [direction + 1], [0], [1])
        columns = ordered_columns(m, m.transpose(m.squeeze(found, (0,)), (1, 0)), gates // 4, ORDER)
        return lambda rows: m.matmul(rows, columns)

    return unroll(call, directions, gates // 4, products)


def ordered_columns(m: Tensors, operand: Operand, hidden: int, order: Sequence[int]) -> Operand:
    """Return the columns of four gates in another order; a number for all columns as it is."""
    *outer, columns = shape_of(operand) or (1,)
    if columns != 4 * hidden:
        return operand
    apart = m.take(m.reshape(operand, (*outer, 4, hidden)), np.asarray(order, np.int64), len(outer))
    return m.reshape(apart, (*outer, columns))


def unroll(call: NodeCall, directions: int, hidden: int, products: Products) -> tuple[Operand | None, ...]:
    """Return the results of an LSTM that multiplies by ``products``."""
    m, turned = call.math, bool(call.integer("layout", 0))
    source, gates = call.real(0), 4 * hidden
    source = m.transpose(source, (1, 0, 2)) if turned else source
    steps, batch, _ = shape_of(source)
    if steps > MOST_STEPS:
        raise call.unsupported(f"input_forget with such activations on {steps} elements; at most {MOST_STEPS}")
    names = call.texts("activations", ["Sigmoid", "Tanh", "Tanh"] * directions)
    if len(names) != 3 * directions or not set(names) <= _FUNCTIONS.keys():
        raise call.unsupported(f"activations {', '.join(names)} are not supported")
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[
        call.text("direction", "forward")
    ]
    if len(backwards) != directions:
        raise call.malformed(f"weights of {directions} directions, expect {len(backwards)}")
    results, last, cells = [], [], []
    for number in range(directions):

        def part(index: int, number: int = number) -> Operand | None:
            found = of_direction(call, index, number)
            return None if found is None else m.squeeze(found, (0,))

        def state(index: int, number: int = number) -> Operand:
            axis = 1 if turned else 0
            found = of_direction(call, index, number, axis)
            if found is None:
                return m.expand(m.reshape(m.number(0, source), (1, 1)), (batch, hidden))
            return m.squeeze(found, (axis,))

        bias, peepholes = part(3), part(7)
        inputs = products(1, number)(source)
        if bias is not None:
            first, second = (m.slice(bias, [start], [start + gates], [0], [1]) for start in (0, gates))
            added = ordered_columns(m, m.binary(first, second, "add"), hidden, ORDER)
            inputs = m.binary(inputs, added, "add")
        made: list[Operand] = []
        h, c = state(5), m.unsqueeze(state(6), (1,))
        cell = _Cell(call, hidden, products(2, number), peepholes, names[3 * number : 3 * number + 3])
        order = range(steps - 1, -1, -1) if backwards[number] else range(steps)
        for step in order:
            h, c = cell.step(m.squeeze(m.slice(inputs, [step], [step + 1], [0], [1]), (0,)), h, c)
            made.append(h)
        ordered = made[::-1] if backwards[number] else made
        results.append(m.unsqueeze(m.concat([m.unsqueeze(each, (0,)) for each in ordered], 0), (1,)))
        last.append(m.unsqueeze(h, (0,)))
        cells.append(m.reshape(c, (1, batch, hidden)))
    whole, ends = m.concat(results, 1), [m.concat(each, 0) for each in (last, cells)]
    if turned:
        return m.transpose(whole, (2, 0, 1, 3)), *(m.transpose(each, (1, 0, 2)) for each in ends)
    return whole, *ends


class _Cell:
    """A step of one direction."""

    def __init__(
        self,
        call: NodeCall,
        hidden: int,
        recur: Product,
        peepholes: Operand | None,
        names: list[str],
    ) -> None:
        self.math = call.math
        self.hidden = hidden
        self.recur = recur
        self.clip = call.number("clip", 0.0)
        self.forgets = bool(call.integer("input_forget", 0))
        self.gate, self.candidate, self.result = (_FUNCTIONS[name] for name in names)
        #: Of the input gate and the forget gate (1, 2, H), and of the output gate (H).
        self.peepholes: tuple[Operand, Operand] | None = None
        if peepholes is not None:
            m = call.math
            i, o, f = (m.slice(peepholes, [hidden * k], [hidden * (k + 1)], [0], [1]) for k in range(3))
            self.peepholes = m.reshape(m.concat([i, f], 0), (1, 2, hidden)), o

    def step(self, given: Operand, h: Operand, c: Operand) -> tuple[Operand, Operand]:
        """Return the next hidden state (N, H) and cell state (N, 1, H); the gates (N, 4 H) are in the order of `ORDER`."""
        m = self.math
        total = m.binary(given, self.recur(h), "add")
        rows = shape_of(total)[0]
        if self.peepholes is None:
            total = self._clipped(total)
        apart = m.reshape(total, (rows, 4, self.hidden))
        new = m.slice(apart, [3], [4], [1], [1])
        if self.peepholes is None:
            # Those of one function at once.
            opened = self.gate(m, m.slice(apart, [0], [3], [1], [1]))
            i, f, o = (self._cut(opened, place) for place in range(3))
        else:
            new = self._clipped(new)
            seen = m.binary(m.slice(apart, [0], [2], [1], [1]), m.binary(c, self.peepholes[0], "mul"), "add")
            opened = self.gate(m, self._clipped(seen))
            i, f, o = (*(self._cut(opened, place) for place in range(2)), self._cut(apart, 2))
        if self.forgets:
            f = m.eltwise(i, "linear", -1.0, 1.0)
        c = m.binary(m.binary(f, c, "mul"), m.binary(i, self.candidate(m, new), "mul"), "add")
        if self.peepholes is not None:
            o = self.gate(m, self._clipped(m.binary(o, m.binary(c, self.peepholes[1], "mul"), "add")))
        return m.reshape(m.binary(o, self.result(m, c), "mul"), (rows, self.hidden)), c

    def _cut(self, operand: Operand, place: int) -> Operand:
        return self.math.slice(operand, [place], [place + 1], [1], [1])

    def _clipped(self, x: Operand) -> Operand:
        if not self.clip:
            return x
        return self.math.eltwise(x, "clip", -self.clip, self.clip)
