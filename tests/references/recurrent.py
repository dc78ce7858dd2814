"""Recurrent networks, step by step as their equations stand, with oneDNN's order of gates.

Every direction runs through all layers by itself; the last layer's results of two directions are concatenated or added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, Gru, Lstm, Rnn

from .eltwise import eltwise

Array = NDArray[Any]
Limit = Callable[[Array], Array]
#: (W x of each gate, U, bias of each gate, h, c) -> (h, c)
Cell = Callable[[Array, Array, Array, Array, Array], tuple[Array, Array]]


def recurrent(op: Rnn | Lstm | Gru, args: dict[int, Array]) -> dict[int, Array]:
    """Return dst_layer, dst_iter and, of an LSTM, dst_iter_c by execution argument, those that ``op`` has."""
    layers, directions, _, _, hidden = op.weights_layer.dims
    steps, batch, _ = op.src_layer.dims
    state = (layers, directions, batch, hidden)
    first_h, first_c = (args.get(arg, np.zeros(state)) for arg in (Arg.SRC_1, Arg.SRC_2))
    bias = args.get(Arg.BIAS, np.zeros((layers, directions, 4, hidden)))
    peepholes = args.get(Arg.WEIGHTS_2, np.zeros((layers, directions, 3, hidden)))
    last_h, last_c = np.zeros(state), np.zeros(state)
    results = []
    for direction in range(directions):
        backwards = direction == 1 or op.direction == "right2left"
        seen = args[Arg.SRC]
        for layer in range(layers):
            at = (layer, direction)
            h, c = first_h[at], first_c[at]
            out = np.zeros((steps, batch, hidden))
            for step in reversed(range(steps)) if backwards else range(steps):
                inputs = np.einsum("nc,cgh->ngh", seen[step], args[Arg.WEIGHTS][at])
                h, c = _cell(op, peepholes[at])(inputs, args[Arg.WEIGHTS_1][at], bias[at], h, c)
                out[step] = h
            last_h[at], last_c[at] = h, c
            seen = out
        results.append(seen)
    joined = np.concatenate(results, axis=2) if op.direction == "bidirectional_concat" else np.sum(results, axis=0)
    found = {Arg.DST: joined, Arg.DST_1: last_h, Arg.DST_2: last_c}
    return {int(arg): found[Arg(arg)] for arg in op.outputs()}


def _cell(op: Rnn | Lstm | Gru, peepholes: Array) -> Cell:
    most = op.clip or np.inf

    def limited(x: Array) -> Array:
        return np.clip(x, -most, most)

    if isinstance(op, Rnn):

        def vanilla(inputs: Array, recurrent: Array, bias: Array, h: Array, c: Array) -> tuple[Array, Array]:
            return eltwise(op.activation, limited(inputs[:, 0] + h @ recurrent[:, 0] + bias[0]), op.alpha, 0.0), c

        return vanilla
    functions = [
        partial(_function, name, alpha, beta)
        for name, alpha, beta in zip(op.activations, op.alphas, op.betas, strict=True)
    ]
    if isinstance(op, Lstm):
        return partial(_lstm, limited, functions, peepholes)
    return partial(_lbr_gru if op.linear_before_reset else _gru, limited, functions)


def _function(name: str, alpha: float, beta: float, x: Array) -> Array:
    return eltwise(name, x, alpha, beta)


def _lstm(
    limited: Limit, functions: Sequence[Limit], peepholes: Array, inputs: Array, recurrent: Array, bias: Array, h: Array,
    c: Array,
) -> tuple[Array, Array]:  # fmt: skip
    gate, candidate, result = functions
    i, f, new, o = (inputs[:, g] + h @ recurrent[:, g] + bias[g] for g in range(4))
    i, f = (gate(limited(total + factor * c)) for total, factor in zip((i, f), peepholes, strict=False))
    c = f * c + i * candidate(limited(new))
    return gate(limited(o + peepholes[2] * c)) * result(c), c


def _gru(
    limited: Limit, functions: Sequence[Limit], inputs: Array, recurrent: Array, bias: Array, h: Array, c: Array
) -> tuple[Array, Array]:  # fmt: skip
    gate, candidate = functions
    u, r = (gate(limited(inputs[:, g] + h @ recurrent[:, g] + bias[g])) for g in range(2))
    o = candidate(limited(inputs[:, 2] + (r * h) @ recurrent[:, 2] + bias[2]))
    return u * h + (1 - u) * o, c


def _lbr_gru(
    limited: Limit, functions: Sequence[Limit], inputs: Array, recurrent: Array, bias: Array, h: Array, c: Array
) -> tuple[Array, Array]:  # fmt: skip
    gate, candidate = functions
    u, r = (gate(limited(inputs[:, g] + h @ recurrent[:, g] + bias[g])) for g in range(2))
    o = candidate(limited(inputs[:, 2] + r * (h @ recurrent[:, 2] + bias[3]) + bias[2]))
    return u * h + (1 - u) * o, c
