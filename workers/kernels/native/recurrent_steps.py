"""Advance a recurrent network through all steps of a sequence: for weights so small that launches would take longer.

The products of a step are sums over the state, whose weights stay in the first-level cache; `recurrent_cell` computes the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import types
from .elements import elements
from .integer_dot import register_bits
from .recurrent_cell import GRU_GATES, GRU_STATE, LSTM
from .recurrent_cell import make as make_cell
from .vec import vadd, vfma


def make(
    isa: str, cell: int, activation: str, alpha: float, dtype: str = "f32", clip: float = 0.0, peepholes: bool = False,
    **functions: Any,
) -> tuple[Callable[..., None], Any]:  # fmt: skip
    """Return the kernel of a whole cell, or of both halves of a GRU's if ``cell`` is its first half.

    ``functions`` are those of `recurrent_cell`.

    Arguments, of one type: addresses of W x + b (T, N, G, ``apart``), of the weights of h, and of those columns that the second
    half of a GRU reads; of room for N rows of U h, ``room`` bytes apart; of the first h (N, H), of h of all steps (T, N, H), of
    the first c (N, H), of c between steps (N, H) and after the last; of the bias (H) that a GRU with linear before reset adds,
    and of the factors (3, H) of c of a cell with ``peepholes``;
    H, G, ``apart`` (channels from gate to gate), T and N; whether steps go backwards; bytes from row to row of the weights, and
    from 16 columns to the next; room; whether there is a first h, a first c, and that bias. One item of work is a sequence.
    """
    is_split = cell == GRU_GATES
    whole, _ = make_cell(isa, cell, activation, alpha, dtype, asks=False, clip=clip, peepholes=peepholes, **functions)
    second, _ = make_cell(isa, GRU_STATE, activation, alpha, dtype, asks=False, clip=clip, **functions)
    of = elements(dtype)
    size, fill, load, load_part, load_one, store = of.size, of.fill, of.load, of.load_part, of.load_one, of.store
    zero = of.real(0.0)
    is_narrow = register_bits(isa) == 128
    remembers_later = int(cell == LSTM)

    def multiply(state: int, weights: int, to: int, hidden: int, columns: int, row: int, block: int) -> None:
        """Write the product of a state by columns of the weights, in whole vectors."""
        stop = state + size * hidden
        left = columns
        if not is_narrow:
            while left >= 64:
                p0, p1, p2, p3 = fill(zero), fill(zero), fill(zero), fill(zero)
                at, place = state, weights
                while at < stop:
                    h = load_one(at)
                    p0 = vfma(h, load(place), p0)
                    p1 = vfma(h, load(place + block), p1)
                    p2 = vfma(h, load(place + 2 * block), p2)
                    p3 = vfma(h, load(place + 3 * block), p3)
                    at += size
                    place += row
                store(to, p0)
                store(to + 16 * size, p1)
                store(to + 32 * size, p2)
                store(to + 48 * size, p3)
                weights += 4 * block
                to += 64 * size
                left -= 64
        while left > 0:
            # Two sums at once: one would wait for itself.
            even, odd = fill(zero), fill(zero)
            at, place = state, weights
            if left >= 16:
                while at + size < stop:
                    even = vfma(load_one(at), load(place), even)
                    odd = vfma(load_one(at + size), load(place + row), odd)
                    at += 2 * size
                    place += 2 * row
                if at < stop:
                    even = vfma(load_one(at), load(place), even)
            else:
                while at < stop:
                    even = vfma(load_one(at), load_part(place, left), even)
                    at += size
                    place += row
            store(to, vadd(even, odd))
            weights += block
            to += 16 * size
            left -= 16

    def recurrent_steps(
        begin: int, end: int, inputs: int, weights: int, others: int, products: int, first: int, results: int,
        kept: int, keeps: int, last: int, bias: int, seen: int, hidden: int, gates: int, apart: int, steps: int, batch: int,
        backwards: int, row: int, block: int, room: int, begun: int, remembers: int, biased: int,
    ) -> None:  # fmt: skip
        vectors = (hidden + 15) // 16
        state = size * hidden
        wide = 2 * apart if is_split else gates * apart
        for n in range(begin, end):
            u = products + n * room
            h, c, started, remembered = first + n * state, kept + n * state, begun, remembers
            for number in range(steps):
                step = steps - 1 - number if backwards else number
                place = step * batch + n
                x, after = inputs + place * gates * size * apart, results + place * state
                to = (last if number == steps - 1 else keeps) + n * state
                if started:
                    multiply(h, weights, u, hidden, wide, row, block)
                whole(0, vectors, x, u, h, after, c, to, bias, seen, hidden, gates, apart, wide, started,
                      remembered, biased)  # fmt: skip
                if is_split:
                    if started:
                        multiply(to, others, u, hidden, apart, row, block)
                    second(0, vectors, x, u, h, after, c, to, bias, seen, hidden, gates, apart, apart,
                           started, 0, 0)  # fmt: skip
                h, c, started, remembered = after, to, 1, remembers_later

    return recurrent_steps, types.void(*[types.int64] * 25)
