"""Advance recurrent cells by one step: gates from products that were computed before, and the states from the gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from . import functions
from .compiler import types
from .elements import elements
from .first_lanes import HAVE_MASKS
from .vec import prefetch, vadd, vfma, vmax, vmin, vmul, vneg

#: ISA level -> items of work from the one that is computed to the one whose W x is asked for: those of a step were written long
#: ago, each gate's in a place of its own. Other levels ask for none.
_AHEAD: Final = {"x86-64-v3": 8}
#: The parts: whole cells, and the two halves of a GRU's, between which the reset state is multiplied.
VANILLA, LSTM, LINEAR_BEFORE_RESET, GRU_GATES, GRU_STATE = range(5)


def make(
    isa: str, cell: int, activation: str, alpha: float, dtype: str = "f32", asks: bool = True, clip: float = 0.0,
    peepholes: bool = False, gate: str = "eltwise_logistic", gate_alpha: float = 0.0, gate_beta: float = 0.0,
    candidate: str = "eltwise_tanh", candidate_alpha: float = 0.0, candidate_beta: float = 0.0,
    result: str = "eltwise_tanh", result_alpha: float = 0.0, result_beta: float = 0.0,
) -> tuple[Callable[..., None], Any]:  # fmt: skip
    """Return the kernel of a cell; ``activation`` (``eltwise_tanh``) and ``alpha`` are those of vanilla cells.

    It ``asks`` for the W x of later items, which are not in the first-level cache. What functions of gates are computed of is
    limited by ``clip`` unless that is 0. Other cells have the functions ``gate`` and ``candidate``, an LSTM's also ``result``, of
    c in h. An LSTM cell with ``peepholes`` adds multiples of c to the sums of gates i, f and o.

    Arguments, of one type: addresses of W x + b (N, G, ``apart``), of U h (N, ``wide``), of h before and after (N, H), of c
    before and after (N, H), of the bias (H) that a GRU with linear before reset adds to its last U h, and of the factors (3, H)
    of c of a cell with peepholes; H, G, ``apart``,
    the channels from gate to gate, and ``wide``; whether there is an h before (else it is 0, and U h is not read), a c before,
    and that bias. The gates of a GRU leave the sum of the update gate in place of its W x, and write r * h in place of c
    after. One item of work is 16 channels of a sequence.
    """
    if not VANILLA <= cell <= GRU_STATE:
        raise ValueError(f"cell must be {VANILLA} to {GRU_STATE}, got {cell}")
    activate, open_gate, propose, show = (
        functions.eltwise(name.removeprefix("eltwise_")) for name in (activation, gate, candidate, result)
    )
    is_logistic = gate == "eltwise_logistic"
    of = elements(dtype)
    size, fill, load, load_part, store, store_part = of.size, of.fill, of.load, of.load_part, of.store, of.store_part
    is_masked = isa in HAVE_MASKS
    ahead = _AHEAD.get(isa, 0) if asks else 0
    slope, zero, one = of.real(alpha), of.real(0.0), of.real(1.0)
    gate_first, gate_second = of.real(gate_alpha), of.real(gate_beta)
    candidate_first, candidate_second = of.real(candidate_alpha), of.real(candidate_beta)
    result_first, result_second = of.real(result_alpha), of.real(result_beta)
    low, high, clips = of.real(-clip), of.real(clip), clip > 0.0

    def read(at: int, lanes: int) -> Any:
        if lanes == 16 and not is_masked:
            return load(at)
        return load_part(at, lanes)

    def write(at: int, value: Any, lanes: int) -> None:
        if lanes == 16 and not is_masked:
            store(at, value)
        else:
            store_part(at, value, lanes)

    def limited(value: Any) -> Any:
        if clips:
            # NaN remains.
            value = vmin(fill(high), vmax(fill(low), value))
        return value

    def summed(inputs: int, products: int, lanes: int, begun: int) -> Any:
        value = read(inputs, lanes)
        if begun:
            value = vadd(value, read(products, lanes))
        return value

    def added(inputs: int, products: int, lanes: int, begun: int) -> Any:
        return limited(summed(inputs, products, lanes, begun))

    def opened(inputs: int, products: int, lanes: int, begun: int, factor: int, c: Any) -> Any:
        value = summed(inputs, products, lanes, begun)
        if peepholes:
            value = vfma(read(factor, lanes), c, value)
        return open_gate(limited(value), gate_first, gate_second)

    def recurrent_cell(
        begin: int, end: int, inputs: int, products: int, before: int, after: int, kept: int, keeps: int, bias: int,
        seen: int, hidden: int, gates: int, apart: int, wide: int, begun: int, remembers: int, biased: int,
    ) -> None:  # fmt: skip
        vectors = (hidden + 15) // 16
        step = size * apart
        for item in range(begin, end):
            n = item // vectors
            first = item % vectors * 16
            lanes = min(16, hidden - first)
            if ahead:
                later = item + ahead
                place = inputs + size * (later // vectors * gates * apart + later % vectors * 16)
                for gate_of_place in range(gates):
                    prefetch(place + gate_of_place * step)
            x = inputs + size * (n * gates * apart + first)
            u = products + size * (n * wide + first)
            at = size * (n * hidden + first)
            h = fill(zero)
            if begun:
                h = read(before + at, lanes)
            if cell == VANILLA:
                write(after + at, activate(added(x, u, lanes, begun), slope, zero), lanes)
            elif cell == LSTM:
                factor = seen + size * first
                past = fill(zero)
                if peepholes and remembers:
                    past = read(kept + at, lanes)
                c = vmul(
                    opened(x, u, lanes, begun, factor, past),
                    propose(added(x + 2 * step, u + 2 * step, lanes, begun), candidate_first, candidate_second),
                )
                if remembers:
                    forget = opened(x + step, u + step, lanes, begun, factor + size * hidden, past)
                    c = vfma(forget, read(kept + at, lanes), c)
                write(keeps + at, c, lanes)
                output = opened(x + 3 * step, u + 3 * step, lanes, begun, factor + 2 * size * hidden, c)
                write(after + at, vmul(output, show(c, result_first, result_second)), lanes)
            elif cell == GRU_GATES:
                write(x, added(x, u, lanes, begun), lanes)
                if begun:
                    reset = open_gate(added(x + step, u + step, lanes, begun), gate_first, gate_second)
                    write(keeps + at, vmul(reset, h), lanes)
            else:
                if cell == GRU_STATE:
                    update = read(x, lanes)
                    total = added(x + 2 * step, u, lanes, begun)
                else:
                    update = added(x, u, lanes, begun)
                    reset = open_gate(added(x + step, u + step, lanes, begun), gate_first, gate_second)
                    inner = fill(zero)
                    if biased:
                        inner = read(bias + size * first, lanes)
                    if begun:
                        inner = vadd(inner, read(u + 2 * step, lanes))
                    total = limited(vfma(reset, inner, read(x + 2 * step, lanes)))
                proposed = propose(total, candidate_first, candidate_second)
                if is_logistic:
                    # Not 1 - u, which is inexact if it is small.
                    new = vmul(open_gate(vneg(update), zero, zero), proposed)
                    write(after + at, vfma(open_gate(update, zero, zero), h, new), lanes)
                else:
                    kept_share = open_gate(update, gate_first, gate_second)
                    new = vmul(vadd(fill(one), vneg(kept_share)), proposed)
                    write(after + at, vfma(kept_share, h, new), lanes)

    return recurrent_cell, types.void(*[types.int64] * 17)
