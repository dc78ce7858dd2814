"""Advance recurrent cells by one step: gates from products that were computed before, and the states from the gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import functions
from .compiler import types
from .elements import elements
from .vec import vadd, vfma, vmul, vneg

#: The parts: whole cells, and the two halves of a GRU's, between which the reset state is multiplied.
VANILLA, LSTM, LINEAR_BEFORE_RESET, GRU_GATES, GRU_STATE = range(5)


def make(isa: str, cell: int, activation: str, alpha: float, dtype: str = "f32") -> tuple[Callable[..., None], Any]:
    """Return the kernel of a cell; ``activation`` (``eltwise_tanh``) and ``alpha`` are those of vanilla cells.

    Arguments, of one type: addresses of W x + b (N, G, H), of U h (N, ``wide``), of h before and after (N, H), of c before and
    after (N, H), and of the bias (H) that a GRU with linear before reset adds to its last U h; H, G, ``wide``; whether
    there is an h before (else it is 0, and U h is not read), a c before, and that bias. The gates of a GRU leave the sum
    of the update gate in place of its W x, and write r * h in place of c after. One item of work is 16 channels of a
    sequence.
    """
    if not VANILLA <= cell <= GRU_STATE:
        raise ValueError(f"cell must be {VANILLA} to {GRU_STATE}, got {cell}")
    activate, squash, gate = (
        functions.eltwise(name) for name in (activation.removeprefix("eltwise_"), "tanh", "logistic")
    )
    of = elements(dtype)
    size, fill, load_part, store_part = of.size, of.fill, of.load_part, of.store_part
    slope, zero = of.real(alpha), of.real(0.0)

    def added(inputs: int, products: int, lanes: int, begun: int) -> Any:
        value = load_part(inputs, lanes)
        if begun:
            value = vadd(value, load_part(products, lanes))
        return value

    def recurrent_cell(
        begin: int, end: int, inputs: int, products: int, before: int, after: int, kept: int, keeps: int, bias: int,
        hidden: int, gates: int, wide: int, begun: int, remembers: int, biased: int,
    ) -> None:  # fmt: skip
        vectors = (hidden + 15) // 16
        step = size * hidden
        for item in range(begin, end):
            n = item // vectors
            first = item % vectors * 16
            lanes = min(16, hidden - first)
            x = inputs + size * (n * gates * hidden + first)
            u = products + size * (n * wide + first)
            at = size * (n * hidden + first)
            h = fill(zero)
            if begun:
                h = load_part(before + at, lanes)
            if cell == VANILLA:
                store_part(after + at, activate(added(x, u, lanes, begun), slope, zero), lanes)
            elif cell == LSTM:
                c = vmul(gate(added(x, u, lanes, begun), zero, zero),
                         squash(added(x + 2 * step, u + 2 * step, lanes, begun), zero, zero))  # fmt: skip
                if remembers:
                    forget = gate(added(x + step, u + step, lanes, begun), zero, zero)
                    c = vfma(forget, load_part(kept + at, lanes), c)
                store_part(keeps + at, c, lanes)
                output = gate(added(x + 3 * step, u + 3 * step, lanes, begun), zero, zero)
                store_part(after + at, vmul(output, squash(c, zero, zero)), lanes)
            elif cell == GRU_GATES:
                store_part(x, added(x, u, lanes, begun), lanes)
                if begun:
                    reset = gate(added(x + step, u + step, lanes, begun), zero, zero)
                    store_part(keeps + at, vmul(reset, h), lanes)
            else:
                if cell == GRU_STATE:
                    update = load_part(x, lanes)
                    candidate = added(x + 2 * step, u, lanes, begun)
                else:
                    update = added(x, u, lanes, begun)
                    reset = gate(added(x + step, u + step, lanes, begun), zero, zero)
                    inner = fill(zero)
                    if biased:
                        inner = load_part(bias + size * first, lanes)
                    if begun:
                        inner = vadd(inner, load_part(u + 2 * step, lanes))
                    candidate = vfma(reset, inner, load_part(x + 2 * step, lanes))
                candidate = squash(candidate, zero, zero)
                # Not 1 - u, which is inexact if it is small.
                new = vmul(gate(vneg(update), zero, zero), candidate)
                store_part(after + at, vfma(gate(update, zero, zero), h, new), lanes)

    return recurrent_cell, types.void(*[types.int64] * 15)
