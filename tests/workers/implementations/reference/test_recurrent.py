"""Vanilla, LSTM and GRU networks in all directions, with optional arguments there or not, drawn at random."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.workers.desc import Arg, Gru, Lstm, MemoryDesc, PrimitiveAttr, Quantisation, Rnn
from poolrt.workers.desc.operations.recurrent import DIRECTIONS
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc

from .drawing import LAST_PLACE, Runner, arguments, check, described, examples


@st.composite
def networks(draw: st.DrawFn, kind: str) -> Any:
    def tensor(*dims: int) -> MemoryDesc:
        return draw(described(dims, draw(st.sampled_from(tuple(LAST_PLACE)))))

    def perhaps(*dims: int) -> MemoryDesc | None:
        return tensor(*dims) if draw(st.booleans()) else None

    direction = draw(st.sampled_from(DIRECTIONS))
    steps, batch, hidden = draw(st.integers(0, 4)), draw(st.integers(0, 3)), draw(st.integers(1, 5))
    layers = draw(st.integers(1, 3))
    channels = hidden if layers > 1 else draw(st.integers(1, 5))
    stack = (layers, 2 if direction.startswith("bidirectional") else 1)
    gates = {"rnn": 1, "lstm": 4}.get(kind, 3)
    state = (*stack, batch, hidden)
    tensors: dict[str, Any] = {
        "src_layer": tensor(steps, batch, channels),
        "src_iter": perhaps(*state),
        "weights_layer": tensor(*stack, channels, gates, hidden),
        "weights_iter": tensor(*stack, hidden, gates, hidden),
        "bias": perhaps(*stack, gates + (kind == "lbr_gru"), hidden),
        "dst_layer": tensor(steps, batch, hidden * (1 + (direction == "bidirectional_concat"))),
        "dst_iter": perhaps(*state),
        "direction": direction,
        "prop": draw(st.sampled_from(("forward_inference", "forward_training"))),
    }
    if kind == "lstm":
        return Lstm(**tensors, src_iter_c=perhaps(*state), dst_iter_c=perhaps(*state))
    if kind == "rnn":
        activation, alpha = draw(st.sampled_from((("tanh", 0.0), ("logistic", 0.0), ("relu", 0.0), ("relu", 0.25))))
        return Rnn(**tensors, activation=activation, alpha=alpha)
    return Gru(**tensors, linear_before_reset=kind == "lbr_gru")


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru", "lbr_gru"])
@examples(25)
@given(data=st.data())
def test_forward(runner: Runner, kind: str, data: st.DataObject) -> None:
    op = data.draw(networks(kind))
    check(runner, op, args=arguments(op, PrimitiveAttr(), 1, -1.5, 1.5))


def vanilla(dtype: str = "f32") -> Rnn:
    steps, weights, state = (2, 1, 3), (1, 1, 3, 1, 3), (1, 1, 1, 3)
    src, first, kernel, bias = (MemoryDesc(dims, dtype) for dims in (steps, state, weights, state))
    return Rnn(src, first, kernel, kernel, bias, src, first)


@pytest.mark.parametrize(
    ("op", "attr", "why"),
    [
        (vanilla("s8"), PrimitiveAttr(), "data type s8"),
        (vanilla(), PrimitiveAttr(scales=(Quantisation(Arg.SRC),)), "takes no scales"),
    ],
)
def test_what_recurrent_networks_cannot_take_is_refused(op: Rnn, attr: PrimitiveAttr, why: str) -> None:
    with pytest.raises(UnsupportedPrimitive, match=why):
        primitive_desc(op, attr, cpu_target())
