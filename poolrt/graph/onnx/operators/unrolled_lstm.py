"""LSTM with options or products that the operation of a graph does not have: operations for each element of the sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from ..call import NodeCall
from ..tensors import Operand, Tensors, shape_of

_Function: TypeAlias = "Callable[[Tensors, Operand], Operand]"
Product: TypeAlias = "Callable[[Operand], Operand]"
#: Returns the product by the weights of a direction: those of operand 1, or the recurrent ones of operand 2.
Products: TypeAlias = "Callable[[int, int], Product]"
#: Elements of a sequence: each takes about twenty operations.
MOST_STEPS: Final = 512
_FUNCTIONS: Final[dict[str, _Function]] = {
    "Sigmoid": lambda m, x: m.eltwise(x, "logistic"),
    "Tanh": lambda m, x: m.eltwise(x, "tanh"),
    "Relu": lambda m, x: m.eltwise(x, "relu"),
}


def unrolled_lstm(call: NodeCall) -> tuple[Operand | None, ...]:
    """Compute peepholes, ``clip``, ``input_forget`` and any of three activations; sequences have one length."""
    m = call.math
    directions, gates, _ = shape_of(call.real(1))

    def products(weights: int, direction: int) -> Product:
        found = m.slice(call.real(weights), [direction], [direction + 1], [0], [1])
        columns = m.transpose(m.squeeze(found, (0,)), (1, 0))
        return lambda rows: m.matmul(rows, columns)

    return unroll(call, directions, gates // 4, products)


def unroll(call: NodeCall, directions: int, hidden: int, products: Products) -> tuple[Operand | None, ...]:
    """Return the results of an LSTM that multiplies by ``products``."""
    m, turned = call.math, bool(call.integer("layout", 0))
    source, gates = call.real(0), 4 * hidden
    source = m.transpose(source, (1, 0, 2)) if turned else source
    steps, batch, _ = shape_of(source)
    if steps > MOST_STEPS:
        raise call.unsupported(f"peepholes, clip, or other activations of {steps} elements; at most {MOST_STEPS}")
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
            found = call.optional(index)
            return None if found is None else m.squeeze(m.slice(found, [number], [number + 1], [0], [1]), (0,))

        def state(index: int, number: int = number) -> Operand:
            found = call.optional(index)
            if found is None:
                return m.expand(m.reshape(m.number(0, source), (1, 1)), (batch, hidden))
            axis = 1 if turned else 0
            return m.squeeze(m.slice(found, [number], [number + 1], [axis], [1]), (axis,))

        bias, peepholes = part(3), part(7)
        inputs = products(1, number)(source)
        if bias is not None:
            first, second = (m.slice(bias, [start], [start + gates], [0], [1]) for start in (0, gates))
            inputs = m.binary(inputs, m.binary(first, second, "add"), "add")
        made: list[Operand] = []
        h, c = state(5), state(6)
        cell = _Cell(call, hidden, products(2, number), peepholes, names[3 * number : 3 * number + 3])
        order = range(steps - 1, -1, -1) if backwards[number] else range(steps)
        for step in order:
            h, c = cell.step(m.squeeze(m.slice(inputs, [step], [step + 1], [0], [1]), (0,)), h, c)
            made.append(h)
        ordered = made[::-1] if backwards[number] else made
        results.append(m.unsqueeze(m.concat([m.unsqueeze(each, (0,)) for each in ordered], 0), (1,)))
        last.append(m.unsqueeze(h, (0,)))
        cells.append(m.unsqueeze(c, (0,)))
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
        #: Of the input gate, the output gate and the forget gate.
        self.peepholes = [None] * 3 if peepholes is None else [self._cut(peepholes, place, 0) for place in range(3)]

    def step(self, given: Operand, h: Operand, c: Operand) -> tuple[Operand, Operand]:
        """Return the next hidden state and cell state; the gates are in ONNX's order."""
        m = self.math
        total = m.binary(given, self.recur(h), "add")
        i, o, f, g = (self._cut(total, place, 1) for place in range(4))
        i = self.gate(m, self._clipped(self._peeped(i, c, 0)))
        if self.forgets:
            f = m.eltwise(i, "linear", -1.0, 1.0)
        else:
            f = self.gate(m, self._clipped(self._peeped(f, c, 2)))
        g = self.candidate(m, self._clipped(g))
        c = m.binary(m.binary(f, c, "mul"), m.binary(i, g, "mul"), "add")
        o = self.gate(m, self._clipped(self._peeped(o, c, 1)))
        return m.binary(o, self.result(m, c), "mul"), c

    def _cut(self, operand: Operand, place: int, axis: int) -> Operand:
        return self.math.slice(operand, [place * self.hidden], [(place + 1) * self.hidden], [axis], [1])

    def _peeped(self, x: Operand, c: Operand, place: int) -> Operand:
        weights = self.peepholes[place]
        return x if weights is None else self.math.binary(x, self.math.binary(c, weights, "mul"), "add")

    def _clipped(self, x: Operand) -> Operand:
        if not self.clip:
            return x
        low, high = (self.math.number(sign * self.clip, x) for sign in (-1, 1))
        return self.math.binary(self.math.binary(x, low, "max"), high, "min")
