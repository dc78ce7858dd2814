"""Run recurrent cells over all steps, layers and directions of a sequence; an item is a sequence.

States are kept in float64 in the scratchpad, where a sequence has a part of its own: the results of the layer of each
direction, the input and the states h and c of a step, the reset state of a GRU, and the gates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...codes import CELLS
from ..compiler import types
from .data_types import load, store
from .functions import eltwise
from .scalars import read_f64, write_f64
from .tensor import at, base, dim, dtype

VANILLA = CELLS["rnn"]
LSTM = CELLS["lstm"]
GRU = CELLS["gru"]
LBR_GRU = CELLS["lbr_gru"]


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Its arguments: the arguments' records, then cell, the functions of gates, of what is proposed and of c in h, backwards,
    concat, scratch, part, alpha and beta of each function, clip, operands. Vanilla cells have the second function alone.

    The records are those of src_layer, src_iter, src_iter_c, weights_layer, weights_iter, weights_peephole, bias, dst_layer,
    dst_iter, dst_iter_c, 0 if there is none. ``part`` is the size in bytes of a sequence's part of the scratchpad.
    """

    def recurrent(
        begin: int, end: int, src_layer: int, src_iter: int, src_iter_c: int, weights_layer: int, weights_iter: int,
        peephole: int, bias: int, dst_layer: int, dst_iter: int, dst_iter_c: int, cell: int, gate: int,
        candidate: int, result: int, backwards: int, concat: int, scratch: int, part: int, gate_alpha: float,
        gate_beta: float, alpha: float, beta: float, result_alpha: float, result_beta: float, clip: float, operands: Any,
    ) -> None:  # fmt: skip
        layers, directions = dim(weights_layer, 0), dim(weights_layer, 1)
        channels, hidden = dim(weights_layer, 2), dim(weights_layer, 4)
        steps = dim(src_layer, 0)
        for item in range(begin, end):
            results = scratch + item * part
            h = results + 8 * directions * steps * hidden
            c = h + 8 * hidden
            reset = c + 8 * hidden
            gates = reset + 8 * hidden
            x = gates + 32 * hidden
            for direction in range(directions):
                mine = results + 8 * direction * steps * hidden
                for layer in range(layers):
                    _begin_state(operands, src_iter, layer, direction, item, h, hidden)
                    _begin_state(operands, src_iter_c, layer, direction, item, c, hidden)
                    for count in range(steps):
                        step = count if backwards + direction == 0 else steps - 1 - count
                        if layer == 0:
                            source = base(operands, src_layer) + at(src_layer, 0, step) + at(src_layer, 1, item)
                            for k in range(channels):
                                write_f64(x + 8 * k, load(source + at(src_layer, 2, k), dtype(src_layer)))
                        else:
                            _copy(x, mine + 8 * step * hidden, hidden)
                        _cell(
                            operands, weights_layer, weights_iter, peephole, bias, layer, direction, cell, gate, candidate,
                            result, gate_alpha, gate_beta, alpha, beta, result_alpha, result_beta, clip, x, h, c, reset, gates,
                        )  # fmt: skip
                        _copy(mine + 8 * step * hidden, h, hidden)
                    _end_state(operands, dst_iter, layer, direction, item, h, hidden)
                    _end_state(operands, dst_iter_c, layer, direction, item, c, hidden)
            for step in range(steps):
                target = base(operands, dst_layer) + at(dst_layer, 0, step) + at(dst_layer, 1, item)
                for k in range(dim(dst_layer, 2)):
                    if concat:
                        direction = k // hidden
                        value = read_f64(results + 8 * ((direction * steps + step) * hidden + k - direction * hidden))
                    else:
                        value = 0.0
                        for direction in range(directions):
                            value += read_f64(results + 8 * ((direction * steps + step) * hidden + k))
                    store(target + at(dst_layer, 2, k), dtype(dst_layer), value)

    return recurrent, types.void(*[types.int64] * 20, *[types.float64] * 7, types.voidptr)


def _cell(
    operands: Any, weights_layer: int, weights_iter: int, peephole: int, bias: int, layer: int, direction: int, cell: int,
    function: int, candidate: int, result: int, gate_alpha: float, gate_beta: float, alpha: float, beta: float,
    result_alpha: float, result_beta: float, clip: float, x: int, h: int, c: int, reset: int, gates: int,
) -> None:  # fmt: skip
    """Advance the states h and c by one step."""
    hidden, count = dim(weights_layer, 4), dim(weights_layer, 3)
    gru = cell in (GRU, LBR_GRU)
    for gate in range(count):
        last = gru and gate == 2
        for k in range(hidden):
            value = _bias(operands, bias, layer, direction, gate, k)
            value += _product(operands, weights_layer, layer, direction, gate, k, x)
            if last and cell == LBR_GRU:
                inner = _product(operands, weights_iter, layer, direction, gate, k, h)
                inner += _bias(operands, bias, layer, direction, 3, k)
                value += read_f64(gates + 8 * (hidden + k)) * inner
            else:
                value += _product(operands, weights_iter, layer, direction, gate, k, reset if last else h)
            if peephole != 0 and gate < 2:
                value += _bias(operands, peephole, layer, direction, gate, k) * read_f64(c + 8 * k)
            # The output gate of an LSTM sees c after the step.
            if gate < 3:
                value = _limited(value, clip)
            if cell == VANILLA or gate == 2:
                value = eltwise(candidate, value, alpha, beta)
            elif gate < 3:
                value = eltwise(function, value, gate_alpha, gate_beta)
            write_f64(gates + 8 * (gate * hidden + k), value)
        if gru and gate == 1:
            for k in range(hidden):
                write_f64(reset + 8 * k, read_f64(gates + 8 * (hidden + k)) * read_f64(h + 8 * k))
    for k in range(hidden):
        first = read_f64(gates + 8 * k)
        if cell == LSTM:
            kept = read_f64(gates + 8 * (hidden + k)) * read_f64(c + 8 * k)
            state = kept + first * read_f64(gates + 8 * (2 * hidden + k))
            write_f64(c + 8 * k, state)
            value = read_f64(gates + 8 * (3 * hidden + k))
            if peephole != 0:
                value += _bias(operands, peephole, layer, direction, 2, k) * state
            first = eltwise(function, _limited(value, clip), gate_alpha, gate_beta)
            first *= eltwise(result, state, result_alpha, result_beta)
        elif gru:
            first = first * read_f64(h + 8 * k) + (1.0 - first) * read_f64(gates + 8 * (2 * hidden + k))
        write_f64(h + 8 * k, first)


def _limited(value: float, clip: float) -> float:
    """Return a number between -clip and clip unless that is 0. NaN remains."""
    if clip > 0.0:
        if value > clip:
            return clip
        if value < -clip:
            return -clip
    return value


def _product(operands: Any, weights: int, layer: int, direction: int, gate: int, k: int, vector: int) -> float:
    """Return the product of a vector of float64 and a column of (L, D, inputs, G, H) weights."""
    start = base(operands, weights) + at(weights, 0, layer) + at(weights, 1, direction)
    start += at(weights, 3, gate) + at(weights, 4, k)
    total = 0.0
    for index in range(dim(weights, 2)):
        total += load(start + at(weights, 2, index), dtype(weights)) * read_f64(vector + 8 * index)
    return total


def _bias(operands: Any, bias: int, layer: int, direction: int, gate: int, k: int) -> float:
    """Return an element of the bias, 0 if there is none."""
    if bias == 0:
        return 0.0
    place = base(operands, bias) + at(bias, 0, layer) + at(bias, 1, direction) + at(bias, 2, gate) + at(bias, 3, k)
    return load(place, dtype(bias))


def _begin_state(operands: Any, record: int, layer: int, direction: int, item: int, state: int, hidden: int) -> None:
    """Read the first state of a sequence, zeros if there is none."""
    for k in range(hidden):
        value = 0.0
        if record != 0:
            place = base(operands, record) + at(record, 0, layer) + at(record, 1, direction) + at(record, 2, item)
            value = load(place + at(record, 3, k), dtype(record))
        write_f64(state + 8 * k, value)


def _end_state(operands: Any, record: int, layer: int, direction: int, item: int, state: int, hidden: int) -> None:
    """Write the last state of a sequence if it is wanted."""
    if record != 0:
        place = base(operands, record) + at(record, 0, layer) + at(record, 1, direction) + at(record, 2, item)
        for k in range(hidden):
            store(place + at(record, 3, k), dtype(record), read_f64(state + 8 * k))


def _copy(target: int, source: int, count: int) -> None:
    """Copy float64 values."""
    for k in range(count):
        write_f64(target + 8 * k, read_f64(source + 8 * k))
