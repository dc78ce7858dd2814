"""Recurrent networks: all layers, directions and steps in one operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Unpack

import numpy as np

from poolrt.workers.desc.typed import shorten, to_bool, to_float, to_floats

from ..ir import Attribute
from ..node_builder import NodeBuilder
from ..values import NodeOptions, Operand, Value
from .family import Family

#: The functions of gates, of what is proposed, and of an LSTM's c in h.
_LSTM: Final = ("logistic", "tanh", "tanh")
_GRU: Final = ("logistic", "tanh")


class Recurrent(Family):
    """RNN, LSTM and GRU over T steps of N sequences, in L layers and D directions (2 if bidirectional).

    src_layer is (T, N, C), weights_layer (L, D, C, G, H), weights_iter (L, D, H, G, H), bias (L, D, G, H), states are
    (L, D, N, H); ``direction`` is left2right, right2left, bidirectional_concat or bidirectional_sum. The first result,
    dst_layer, is (T, N, H), or (T, N, 2 H) for bidirectional_concat; the others are the states after the last step. A
    ``clip`` that is not 0 limits what functions of gates are computed of, to between its negative and itself.
    """

    def rnn(
        self,
        src_layer: Operand,
        weights_layer: Operand,
        weights_iter: Operand,
        bias: Operand | None = None,
        src_iter: Operand | None = None,
        *,
        activation: str = "tanh",
        alpha: float = 0.0,
        direction: str = "left2right",
        clip: float = 0.0,
        **options: Unpack[NodeOptions],
    ) -> tuple[Value, Value]:
        """Run cells h = activation(W x + U h + b); return dst_layer and the last h.

        G is 1. ``activation`` is tanh, logistic or relu, whose slope below 0 is ``alpha``.
        """
        with self._build("rnn", **options) as node:
            attrs: dict[str, Attribute] = {
                "activation": activation,
                "alpha": to_float("alpha", alpha),
                "direction": direction,
                "clip": to_float("clip", clip),
            }
            dst, state = _add(node, src_layer, weights_layer, weights_iter, bias, [src_iter], attrs, 1)
            return dst, state

    def lstm(
        self,
        src_layer: Operand,
        weights_layer: Operand,
        weights_iter: Operand,
        bias: Operand | None = None,
        src_iter: Operand | None = None,
        src_iter_c: Operand | None = None,
        *,
        direction: str = "left2right",
        clip: float = 0.0,
        weights_peephole: Operand | None = None,
        activations: Sequence[str] = _LSTM,
        alphas: Sequence[float] = (),
        betas: Sequence[float] = (),
        **options: Unpack[NodeOptions],
    ) -> tuple[Value, Value, Value]:
        """Run LSTM cells, gates i, f, c, o: c = f * c + i * c~, h = o * tanh(c); return dst_layer, the last h and c.

        weights_peephole (L, D, 3, H) are factors of c, which the sums of gates i, f and o get: i and f of c before the step, o of
        c after it. ``activations`` are the functions of gates i, f and o, of c~, and of c in h: those of `eltwise`, with
        ``alphas`` and ``betas``.
        """
        with self._build("lstm", **options) as node:
            if (src_iter is None) != (src_iter_c is None):
                raise ValueError("src_iter_c: expect both initial states or neither")
            states = [src_iter, src_iter_c]
            attrs: dict[str, Attribute] = {"direction": direction, "clip": to_float("clip", clip)}
            attrs |= _functions(activations, _LSTM, alphas, betas)
            dst, h, c = _add(node, src_layer, weights_layer, weights_iter, bias, states, attrs, 4, weights_peephole)
            return dst, h, c

    def gru(
        self,
        src_layer: Operand,
        weights_layer: Operand,
        weights_iter: Operand,
        bias: Operand | None = None,
        src_iter: Operand | None = None,
        *,
        linear_before_reset: bool = False,
        direction: str = "left2right",
        clip: float = 0.0,
        activations: Sequence[str] = _GRU,
        alphas: Sequence[float] = (),
        betas: Sequence[float] = (),
        **options: Unpack[NodeOptions],
    ) -> tuple[Value, Value]:
        """Run GRU cells, gates u, r, o: h = u * h + (1 - u) * o; return dst_layer and the last h.

        o is tanh(W x + U (r * h) + b), or with ``linear_before_reset`` tanh(W x + r * (U h + b'') + b), whose bias has a
        fourth row b''. ``activations`` are the functions of gates u and r, and of o: those of `eltwise`, with ``alphas`` and
        ``betas``.
        """
        with self._build("gru", **options) as node:
            linear = to_bool("linear_before_reset", linear_before_reset)
            attrs: dict[str, Attribute] = {
                "linear_before_reset": linear,
                "direction": direction,
                "clip": to_float("clip", clip),
            }
            attrs |= _functions(activations, _GRU, alphas, betas)
            rows = 4 if linear else 3
            dst, state = _add(node, src_layer, weights_layer, weights_iter, bias, [src_iter], attrs, rows)
            return dst, state

    def dynamic_lstm(
        self, src: Operand, weights: Operand, weight_scales: Operand, weight_points: Operand | None = None,
        src_iter: Operand | None = None, src_iter_c: Operand | None = None, *, backwards: bool = False,
        **options: Unpack[NodeOptions],
    ) -> tuple[Value, Value]:  # fmt: skip
        """Run LSTM cells, gates i, f, c, o, that quantise h before they multiply it; return h of all steps, and the last c.

        src (T, N, 4, H) is what inputs and biases add to the gates. Each step quantises h of all sequences as `dynamic_quantise`
        does, and multiplies it by weights (H, 4, H) of int8 less their zero points ``weight_points`` (4, H), with
        ``weight_scales`` (4, H).
        States are (N, H).
        """
        with self._build("dynamic_lstm", **options) as node:
            if (src_iter is None) != (src_iter_c is None):
                raise ValueError("src_iter_c: expect both first states or neither")
            dtype = node.type_of(src)
            operands = [node.operand("src", src)]
            for name, state in (("src_iter", src_iter), ("src_iter_c", src_iter_c)):
                operands += node.optional(name, state, dtype)
            operands += [node.operand("weights", weights, "s8"), node.operand("weight_scales", weight_scales, dtype)]
            operands += node.optional("weight_points", weight_points, "s32")
            dst, last = node.add_all(operands, backwards=to_bool("backwards", backwards))
            return dst, last


def _functions(
    activations: Sequence[str], usual: tuple[str, ...], alphas: Sequence[float], betas: Sequence[float]
) -> dict[str, Attribute]:
    """Return the attributes of functions; none if they are the usual ones."""
    try:
        names = () if isinstance(activations, str) else tuple(activations)
    except TypeError:
        names = ()
    if len(names) != len(usual):
        raise ValueError(f"activations: expect {len(usual)} names, got {shorten(activations)}")
    first, second = to_floats("alphas", alphas), to_floats("betas", betas)
    if names == usual and not (first or second):
        return {}
    return {"activations": names, "alphas": first, "betas": second}


def _add(
    node: NodeBuilder,
    src: Operand,
    weights_layer: Operand,
    weights_iter: Operand,
    bias: Operand | None,
    states: Sequence[Operand | None],
    attrs: dict[str, Attribute],
    rows: int,
    peephole: Operand | None = None,
) -> tuple[Value, ...]:
    """Add a recurrent node; the default bias is 0."""
    dtype = node.type_of(src, weights_layer)
    value, wide = node.operand("src_layer", src, dtype), node.operand("weights_layer", weights_layer, dtype)
    deep = node.operand("weights_iter", weights_iter, dtype)
    if bias is None:
        if wide.ndim != 5:
            raise ValueError(f"weights_layer: expect (L, D, C, G, H), got {wide.shape}")
        bias = np.zeros((*wide.shape[:2], rows, wide.shape[4]), np.float32)
    given = [
        node.operand(name, s, dtype)
        for name, s in zip(("src_iter", "src_iter_c"), states, strict=False)
        if s is not None
    ]
    added = node.operand("bias", bias, "f64" if dtype == "f64" else "f32")
    seen = node.optional("weights_peephole", peephole, dtype)
    return node.add_all([value, *given, wide, deep, *seen, added], **attrs)
