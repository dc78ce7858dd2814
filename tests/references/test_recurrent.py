"""The references of recurrent operations against ONNX Runtime, and against one another where layers are stacked."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, Gru, Lstm, MemoryDesc, Rnn

from .onnx_node import run_node_for_all
from .recurrent import recurrent

Array = NDArray[Any]
STEPS, BATCH, CHANNELS, HIDDEN = 5, 3, 4, 2
#: Our number of each of ONNX's gates, which are: i o f c, z r h.
GATES = {"lstm": (0, 3, 1, 2), "gru": (0, 1, 2), "lbr_gru": (0, 1, 2), "rnn": (0,)}
#: ONNX's names of directions; a sum has none and is made of the two halves.
DIRECTIONS = {"left2right": "forward", "right2left": "reverse", "bidirectional_concat": "bidirectional"}


def operation(kind: str, direction: str, layers: int = 1, channels: int = CHANNELS, **more: Any) -> Any:
    def plain(*dims: int) -> MemoryDesc:
        return MemoryDesc(dims, "f64")

    directions = 2 if direction.startswith("bidirectional") else 1
    gates = len(GATES[kind])
    stack = (layers, directions)
    state = plain(*stack, BATCH, HIDDEN)
    tensors: dict[str, Any] = {
        "src_layer": plain(STEPS, BATCH, channels),
        "src_iter": state,
        "weights_layer": plain(*stack, channels, gates, HIDDEN),
        "weights_iter": plain(*stack, HIDDEN, gates, HIDDEN),
        "bias": plain(*stack, gates + (kind == "lbr_gru"), HIDDEN),
        "dst_layer": plain(STEPS, BATCH, HIDDEN * (1 + (direction == "bidirectional_concat"))),
        "dst_iter": state,
        "direction": direction,
        **more,
    }
    if kind == "lstm":
        return Lstm(**tensors, src_iter_c=state, dst_iter_c=state)
    return Rnn(**tensors) if kind == "rnn" else Gru(**tensors, linear_before_reset=kind == "lbr_gru")


def filled(op: Any) -> dict[int, Array]:
    rng = np.random.default_rng(11)
    return {arg: rng.standard_normal(md.dims) for arg, md in op.memories().items() if arg not in op.outputs()}


def onnxruntime_result(kind: str, op: Any, args: dict[int, Array]) -> list[Array]:
    order = GATES[kind]

    def flat(weights: Array) -> Array:
        """Return (D, gates * H, inputs) from (1, D, inputs, gates, H)."""
        return np.asarray(np.moveaxis(weights[0][:, :, order], 1, 3).reshape(weights.shape[1], len(order) * HIDDEN, -1))

    bias = args[Arg.BIAS][0]
    first = bias[:, order].reshape(len(bias), -1)
    second = np.zeros_like(first)
    if kind == "lbr_gru":
        second[:, 2 * HIDDEN :] = bias[:, 3]
    inputs: list[Array | None] = [
        args[Arg.SRC], flat(args[Arg.WEIGHTS]), flat(args[Arg.WEIGHTS_1]), np.concatenate([first, second], 1), None,
        args[Arg.SRC_1][0] if Arg.SRC_1 in args else None,
    ]  # fmt: skip
    attributes: dict[str, Any] = {"hidden_size": HIDDEN, "direction": DIRECTIONS[op.direction]}
    if kind == "lstm":
        inputs.append(args[Arg.SRC_2][0])
    elif kind == "lbr_gru":
        attributes["linear_before_reset"] = 1
    elif kind == "rnn":
        name = {"tanh": "Tanh", "logistic": "Sigmoid", "relu": "LeakyRelu"}[op.activation]
        attributes |= {"activations": [name] * len(bias), "activation_alpha": [op.alpha] * len(bias)}
    node = {"lbr_gru": "GRU"}.get(kind, kind.upper())
    return run_node_for_all(node, inputs, 3 if kind == "lstm" else 2, **attributes)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", GATES)
def test_one_layer_agrees_with_onnxruntime(kind: str, direction: str) -> None:
    op = operation(kind, direction)
    args = filled(op)
    got = recurrent(op, args)
    sequence, *states = onnxruntime_result(kind, op, args)
    # ONNX gives (steps, directions, batch, hidden)
    np.testing.assert_allclose(got[Arg.DST], np.concatenate(list(np.moveaxis(sequence, 1, 0)), 2), atol=1e-5)
    for arg, wanted in zip((Arg.DST_1, Arg.DST_2), states, strict=False):
        np.testing.assert_allclose(got[arg][0], wanted, atol=1e-5)


@pytest.mark.parametrize(("activation", "alpha"), [("relu", 0.0), ("relu", 0.25), ("logistic", 0.0)])
def test_activations_of_vanilla_cells_agree_with_onnxruntime(activation: str, alpha: float) -> None:
    op = operation("rnn", "left2right", activation=activation, alpha=alpha)
    args = filled(op)
    sequence, _ = onnxruntime_result("rnn", op, args)
    np.testing.assert_allclose(recurrent(op, args)[Arg.DST], sequence[:, 0], atol=1e-4)


@pytest.mark.parametrize("kind", GATES)
def test_layers_are_stacked_in_each_direction_by_itself(kind: str) -> None:
    # Given two layers in both directions, and the same as four operations of one layer
    op = operation(kind, "bidirectional_concat", layers=2, channels=HIDDEN)
    args = filled(op)
    halves = []
    states = np.zeros((2, 2, BATCH, HIDDEN))
    for direction, name in enumerate(("left2right", "right2left")):
        seen = args[Arg.SRC]
        for layer in range(2):
            single = operation(kind, name, channels=HIDDEN)
            mine = {arg: v[layer : layer + 1, direction : direction + 1] for arg, v in args.items() if arg != Arg.SRC}
            found = recurrent(single, {**mine, Arg.SRC: seen})
            seen, states[layer, direction] = found[Arg.DST], found[Arg.DST_1][0, 0]
        halves.append(seen)
    # Then their results lie side by side, or are added
    np.testing.assert_allclose(recurrent(op, args)[Arg.DST], np.concatenate(halves, 2), rtol=1e-12)
    np.testing.assert_allclose(recurrent(op, args)[Arg.DST_1], states, rtol=1e-12)
    added = dataclasses.replace(op, direction="bidirectional_sum", dst_layer=op.src_layer)
    np.testing.assert_allclose(recurrent(added, args)[Arg.DST], halves[0] + halves[1], rtol=1e-12)


def test_a_state_left_out_is_zero() -> None:
    op = operation("gru", "right2left", src_iter=None, bias=None, dst_iter=None)
    args = filled(op)
    zeros: dict[int, Array] = {Arg.SRC_1: np.zeros((1, 1, BATCH, HIDDEN)), Arg.BIAS: np.zeros((1, 1, 3, HIDDEN))}
    given = recurrent(operation("gru", "right2left"), {**args, **zeros})
    got = recurrent(op, args)
    assert list(got) == [Arg.DST]
    np.testing.assert_array_equal(got[Arg.DST], given[Arg.DST])
