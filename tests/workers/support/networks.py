"""Descriptors of recurrent networks for the pages of support and for random tests."""

from __future__ import annotations

from typing import Any

from poolrt.workers.desc import Gru, Lstm, MemoryDesc, OpDesc, Rnn
from poolrt.workers.desc.operations.recurrent import DIRECTIONS


def _networks(prop: str, dtype: str, gates: int, bias_gates: int) -> list[dict[str, Any]]:
    found = []
    for number, (steps, batch, channels, hidden, layers) in enumerate(
        ((3, 2, 4, 5, 1), (2, 3, 5, 5, 2), (4, 1, 3, 7, 1), (1, 2, 3, 3, 3), (2, 1, 17, 2, 1), (3, 0, 4, 5, 1))
    ):
        direction = DIRECTIONS[number % 4]
        stack = (layers, 2 if direction.startswith("bidirectional") else 1)
        state = MemoryDesc((*stack, batch, hidden), dtype)
        width = 2 * hidden if direction == "bidirectional_concat" else hidden
        found.append(
            {
                "src_layer": MemoryDesc((steps, batch, channels), dtype),
                "src_iter": state if number % 2 else None,
                "weights_layer": MemoryDesc((*stack, channels, gates, hidden), dtype),
                "weights_iter": MemoryDesc((*stack, hidden, gates, hidden), dtype),
                "bias": MemoryDesc((*stack, bias_gates, hidden), dtype) if number != 4 else None,
                "dst_layer": MemoryDesc((steps, batch, width), dtype),
                "dst_iter": state if number != 2 else None,
                "direction": direction,
                "prop": prop,
                "clip": 0.75 if number == 3 else 0.0,
            }
        )
    return found


def rnns(prop: str, dtype: str) -> list[OpDesc]:
    activations = (("tanh", 0.0), ("logistic", 0.0), ("relu", 0.25)) * 2
    networks = _networks(prop, dtype, 1, 1)
    return [Rnn(**n, activation=name, alpha=a) for n, (name, a) in zip(networks, activations, strict=True)]


def lstms(prop: str, dtype: str) -> list[OpDesc]:
    networks = _networks(prop, dtype, 4, 4)
    for number in (1, 3):
        layers, directions, _, _, hidden = networks[number]["weights_iter"].dims
        networks[number]["weights_peephole"] = MemoryDesc((layers, directions, 3, hidden), dtype)
    networks[2] |= {
        "activations": ("hardsigmoid", "relu", "softsign"),
        "alphas": (0.2, 0.1, 0.0),
        "betas": (0.5, 0.0, 0.0),
    }
    return [Lstm(**n, src_iter_c=n["src_iter"], dst_iter_c=n["dst_iter"]) for n in networks]


def grus(prop: str, dtype: str) -> list[OpDesc]:
    plain, linear = (_networks(prop, dtype, 3, gates) for gates in (3, 4))
    for networks in (plain[2], linear[3]):
        networks |= {"activations": ("hardsigmoid", "relu"), "alphas": (0.2, 0.1), "betas": (0.5, 0.0)}
    variants = ((plain, False), (linear, True)) * 3
    return [Gru(**networks[i], linear_before_reset=reset) for i, (networks, reset) in enumerate(variants)]
