"""Sequences of different lengths, of which a run reads the lengths: reversed, and read by recurrent networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from poolrt.cachestore.deferred_dataclass import replace

from ...values import Value
from ..call import NodeCall, Results
from ..tensors import Operand, dtype_of, shape_of
from .activations import Activation, activations_of, attributes_of
from .directions import of_direction

_Operator: TypeAlias = "Callable[[NodeCall], Results]"
#: What is added to a gate before its sigmoid, so that this is 0 or 1; float16 holds it. Hard sigmoids need so much slope.
_SATURATES: Final = 1e4
_LEAST_SLOPE: Final = 0.01
#: Gates of an LSTM in ONNX's order (i, o, f, c): what keeps the cells as they are.
_KEEPS_CELLS: Final = (-_SATURATES, 0.0, _SATURATES, 0.0)


def are_uneven(call: NodeCall) -> bool:
    """Return whether the operand ``sequence_lens`` of a recurrent network may name sequences shorter than the longest.

    Raises ModelError for known lengths that no sequence has.
    """
    lengths = call.optional(4)
    if lengths is None:
        return False
    batch, steps = (call.shape(0)[axis] for axis in ((0, 1) if call.integer("layout", 0) else (1, 0)))
    _check_lengths(call, lengths, batch, steps)
    return isinstance(lengths, Value) or bool((lengths != steps).any())


def reverse(call: NodeCall, source: Operand, lengths: Operand, time_axis: int, batch_axis: int) -> Operand:
    """Return sequences of which the first elements are reversed, as many as their lengths say."""
    sizes, rank = shape_of(source), len(source.shape)
    steps, batch = sizes[time_axis], sizes[batch_axis]
    _check_lengths(call, lengths, batch, steps)
    lined = call.math.reshape(lengths, [batch if axis == batch_axis else 1 for axis in range(rank)])
    return _Ends(call, lined, steps, time_axis, batch_axis).turn(source)


def run_uneven(
    call: NodeCall, operator: _Operator, recurs: str, usual: Sequence[str]
) -> tuple[Operand | None, ...]:  # fmt: skip
    """Return the results of a recurrent network: of each direction, computed for all elements, and cut at the ends.

    Backwards is forwards over reversed sequences. The last hidden states are those at the ends. The last cells of an LSTM are
    not there; elements behind an end have a gate more to read, which keeps the cells as they are.
    """
    m, turned = call.math, bool(call.integer("layout", 0))
    source = m.transpose(call.real(0), (1, 0, 2)) if turned else call.real(0)
    steps, batch, _ = shape_of(source)
    ends = _Ends(call, m.reshape(call.operand(4), (1, batch, 1)), steps, 0, 1)
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[
        call.text("direction", "forward")
    ]
    functions = activations_of(call, usual, len(backwards))
    kept = {name: value for name, value in call.attrs.items() if name not in ("direction", "layout")}
    found: list[list[Operand]] = []
    for number, is_backwards in enumerate(backwards):
        part = _Direction(call, number, turned)
        operands = [ends.turn(source) if is_backwards else source, *(part.of(index) for index in (1, 2, 3))]
        states = [part.of(index) for index in (5, 6)]
        if recurs == "lstm" and 2 in call.outputs:
            if "clip" in call.attrs or not _can_keep_cells(functions[number][0]):
                raise call.unsupported(
                    "the last cells of sequences of different lengths, with clip or gates that are no sigmoids"
                )
            operands[:2] = _with_kept_cells(call, ends, operands[0], operands[1])
        inner = replace(
            call.with_operands(*operands, None, *states, part.of(7)),
            attrs={**kept, **attributes_of(functions[number])},
        )
        results = operator(inner)
        whole = m.squeeze(_present(call, results, 0), (1,))
        last = ends.last(whole)
        whole = ends.cut(whole)
        found.append([m.unsqueeze(ends.turn(whole) if is_backwards else whole, (1,)), last])
        if recurs == "lstm":
            found[-1].append(ends.of_some(_present(call, results, 2)))
    joined = [m.concat(list(parts), 1 if place == 0 else 0) for place, parts in enumerate(zip(*found, strict=True))]
    if turned:
        return (m.transpose(joined[0], (2, 0, 1, 3)), *(m.transpose(state, (1, 0, 2)) for state in joined[1:]))
    return tuple(joined)


class _Direction:
    """The operands of one direction of a recurrent network."""

    def __init__(self, call: NodeCall, number: int, turned: bool) -> None:
        self._call = call
        self._number = number
        self._turned = turned

    def of(self, index: int) -> Operand | None:
        """Return weights, or a state with its directions first."""
        turned = index in (5, 6) and self._turned
        found = of_direction(self._call, index, self._number, 1 if turned else 0)
        return self._call.math.transpose(found, (1, 0, 2)) if turned and found is not None else found


class _Ends:
    """Where sequences end; ``lengths`` have a size of 1 along all axes but that of the ``batch``."""

    def __init__(self, call: NodeCall, lengths: Operand, steps: int, axis: int, batch: int) -> None:
        m = self._math = call.math
        most, zero, one = (np.asarray(number, np.int64) for number in (steps, 0, 1))
        self._axis, self._batch = axis, batch
        self._lengths = m.binary(m.binary(m.cast(lengths, "int64"), most, "min"), zero, "max")
        numbers = np.arange(steps, dtype=np.int64).reshape(
            [-1 if each == axis else 1 for each in range(len(lengths.shape))]
        )
        self._last = m.binary(m.binary(self._lengths, one, "sub"), zero, "max")
        self.is_inside = m.binary(numbers, self._lengths, "lt")
        self._places = m.select(
            self.is_inside, m.binary(self._last, numbers, "sub"), m.expand(numbers, shape_of(self.is_inside))
        )

    def turn(self, x: Operand) -> Operand:
        """Return the elements before the ends in the opposite order."""
        return self._gather(x, self._places)

    def cut(self, x: Operand) -> Operand:
        """Return zeros behind the ends."""
        return self._math.select(self.is_inside, x, self._math.number(0, x))

    def last(self, x: Operand) -> Operand:
        """Return the last element of each sequence."""
        return self.of_some(self._gather(x, self._last))

    def _gather(self, x: Operand, places: Operand) -> Operand:
        """Return elements at places along the axis; each sequence of the batch has its own. Places have the rank of x.

        If the places are known and both axes are neighbours, whole rows are copied. An index for each element would be a
        constant with as many elements as x.
        """
        m, axis, batch, sizes = self._math, self._axis, self._batch, shape_of(x)
        if isinstance(places, Value) or abs(axis - batch) != 1:
            wanted = [shape_of(places)[axis] if each == axis else size for each, size in enumerate(sizes)]
            return m.gather_elements(x, m.expand(places, wanted), axis)
        first, last = sorted((axis, batch))
        steps = np.moveaxis(places, axis, 0).reshape(shape_of(places)[axis], -1)
        batches = np.arange(sizes[batch])
        if axis < batch:
            rows = steps * sizes[batch] + batches
        else:
            rows = (steps + batches * sizes[axis]).T
        merged = m.reshape(x, (*sizes[:first], -1, *sizes[last + 1 :]))
        return m.reshape(m.take(merged, rows.reshape(-1), first), (*sizes[:first], *rows.shape, *sizes[last + 1 :]))

    def of_some(self, state: Operand) -> Operand:
        """Return a state with zeros for sequences without elements, as in ONNX Runtime."""
        m = self._math
        return m.select(m.binary(self._lengths, np.asarray(0, np.int64), "gt"), state, m.number(0, state))


def _can_keep_cells(gate: Activation) -> bool:
    """Return whether a gate is 0 or 1 for large numbers."""
    return gate.name == "logistic" or (gate.name == "hardsigmoid" and gate.alpha > _LEAST_SLOPE and abs(gate.beta) <= 1)


def _with_kept_cells(
    call: NodeCall, ends: _Ends, source: Operand | None, weights: Operand | None
) -> tuple[Operand, Operand]:
    """Return elements with a number more, 1 behind the ends, and weights of gates that it closes and opens."""
    m = call.math
    if source is None or weights is None:
        raise call.malformed("weights are missing")
    hidden = shape_of(weights)[1] // 4
    column = np.repeat(np.asarray(_KEEPS_CELLS), hidden).reshape(1, 4 * hidden, 1)
    behind = m.cast(m.logical_not(ends.is_inside), "float32")
    column = column.astype(m.number(0, weights).dtype)
    return m.concat([source, m.cast(behind, dtype_of(source))], 2), m.concat([weights, column], 2)


def _present(call: NodeCall, results: Results, index: int) -> Operand:
    found = results[index] if isinstance(results, tuple) else None
    if found is None:
        raise call.malformed(f"it has no result {index}")
    return found


def _check_lengths(call: NodeCall, lengths: Operand, batch: int, steps: int) -> None:
    if shape_of(lengths) != (batch,):
        raise call.malformed(f"sequence_lens: expect {batch} numbers, got shape {shape_of(lengths)}")
    if not isinstance(lengths, Value) and not ((lengths >= 0) & (lengths <= steps)).all():
        raise call.malformed(f"sequence_lens: expect numbers up to {steps}, got {lengths.tolist()}")
