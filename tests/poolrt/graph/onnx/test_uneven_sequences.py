"""Recurrent networks and reversals over sequences of different lengths, which are known or inputs, against ONNX Runtime."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from poolrt import Executor, ModelError, UnsupportedNode, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider

from .node_tests import Array, interpret

#: Each compiles kernels of its own.
pytestmark = pytest.mark.one_test_in(2)

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, WIDTH, HIDDEN = 7, 5, 3, 4


def network(
    kind: str,
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array],
    states: bool = True,
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one recurrent network; operands are inputs and constants by name, without initial states if asked."""
    names = ["x", "w", "r", "b", "lengths", *(["h", "c"] if kind == "LSTM" else ["h"])]
    known = {*feeds, *constants}
    outputs = ["y", "y_h", "y_c"] if kind == "LSTM" else ["y", "y_h"]
    if not states:
        outputs = outputs[:1]
    node = helper.make_node(
        kind, [name if name in known else "" for name in names], outputs, "node", hidden_size=HIDDEN, **attributes
    )
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in feeds.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    tensors = [numpy_helper.from_array(each, name) for name, each in constants.items()]
    graph = helper.make_graph([node], "network", given, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def operands(kind: str, directions: int, initial: bool, rng: np.random.Generator) -> dict[str, Array]:
    """Return random operands in ONNX's first layout."""
    gates = GATES[kind] * HIDDEN
    found = {
        "x": rng.standard_normal((STEPS, BATCH, WIDTH)),
        "w": rng.standard_normal((directions, gates, WIDTH)),
        "r": rng.standard_normal((directions, gates, HIDDEN)),
        "b": rng.standard_normal((directions, 2 * gates)),
    }
    if initial:
        found |= {name: rng.standard_normal((directions, BATCH, HIDDEN)) for name in ("h", *"c"[: kind == "LSTM"])}
    return {name: each.astype(np.float32) for name, each in found.items()}


def rival(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return what ONNX Runtime computes."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def compare(
    found: Mapping[str, Array], wanted: Mapping[str, Array], rtol: float = 1e-5, grown: Array | None = None
) -> None:
    """Compare with what ONNX Runtime computes; ``grown`` is what roundings of earlier steps may be in the states."""
    assert list(found) == list(wanted)
    for name, each in wanted.items():
        added = 0.0 if grown is None else grown if name == "y" else grown.max(0)
        error, limit = np.abs(found[name].astype(np.float64) - each), 1e-6 + rtol * np.abs(each) + added
        assert (error <= limit).all(), f"{name}: {(error / limit).max()} times what is allowed"


def growth(given: Mapping[str, Array], y: Array, lengths: Array, backward: bool) -> Array:
    """Return how far apart the states ``y`` of two computations of an RNN may be, each of which rounds its sums to float32.

    A step multiplies the errors of the state before by its weights, and all by the slope of tanh, which may be 1: over
    seven steps they grow a thousandfold. Gates of other networks keep them small.
    """
    w, r, b = (np.abs(given[name]) for name in "wrb")
    unit, found = 2.0**-24, np.zeros(y.shape)
    for direction, sample in itertools.product(range(y.shape[1]), range(BATCH)):
        steps, errors = range(lengths[sample]), np.zeros(HIDDEN)
        state = np.abs(given["h"][direction, sample]) if "h" in given else np.zeros(HIDDEN)
        for step in reversed(steps) if backward or direction else steps:
            after = y[step, direction, sample]
            sums = w[direction] @ np.abs(given["x"][step, sample]) + r[direction] @ state
            sums += b[direction].reshape(2, -1).sum(0)
            rounded = 2 * (WIDTH + HIDDEN + 2) * unit * sums
            errors = (1 - after.astype(np.float64) ** 2) * (rounded + r[direction] @ errors) + 8 * unit
            state, found[step, direction, sample] = np.abs(after), errors
    return found


@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_lengths_may_be_inputs_or_known(kind: str, direction: str, initial: bool) -> None:
    rng = np.random.default_rng()
    given = operands(kind, 2 if direction == "bidirectional" else 1, initial, rng)
    options: dict[str, Any] = {"direction": direction}
    if kind == "GRU":
        options["linear_before_reset"] = int(rng.integers(2))
    feeds = {name: each for name, each in given.items() if name in ("x", "h", "c")}
    weights = {name: each for name, each in given.items() if name not in feeds}
    opened = load_onnx(network(kind, {**feeds, "lengths": np.zeros(BATCH, np.int32)}, weights, **options))
    for lengths in (np.array([7, 3, 1, 0, 2], np.int32), rng.integers(0, STEPS + 1, BATCH).astype(np.int32)):
        fixed = network(kind, feeds, {**weights, "lengths": lengths}, **options)
        wanted = rival(fixed, feeds)
        grown = growth(given, wanted["y"], lengths, direction == "reverse") if kind == "RNN" else None
        compare(interpret(load_onnx(fixed), feeds), wanted, grown=grown)
        compare(interpret(opened, {**feeds, "lengths": lengths}), wanted, grown=grown)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_kernels_compute_them(kind: str, cache: PrimitiveProvider) -> None:
    rng = np.random.default_rng()
    given = operands(kind, 2, False, rng)
    weights = {name: each for name, each in given.items() if name != "x"}
    feeds = {"x": given["x"], "lengths": np.array([2, 7, 5, 1, 4], np.int32)}
    model = network(kind, feeds, weights, direction="bidirectional")
    compare(Executor(load_onnx(model), cache=cache).run(**feeds), rival(model, feeds))


def test_an_lstm_with_peepholes_has_lengths_too() -> None:
    rng = np.random.default_rng()
    given = operands("LSTM", 2, True, rng)
    feeds = {"x": given["x"], "lengths": np.array([2, 7, 5, 1, 4], np.int32)}
    constants = {name: each for name, each in given.items() if name != "x"}
    constants["p"] = rng.standard_normal((2, 3 * HIDDEN)).astype(np.float32)
    model = network("LSTM", feeds, constants, direction="bidirectional")
    model.graph.node[0].input.append("p")
    compare(interpret(load_onnx(model), feeds), rival(model, feeds))


def test_each_direction_has_its_activations() -> None:
    given = operands("LSTM", 2, True, np.random.default_rng())
    feeds = {"x": given["x"], "lengths": np.array([2, 7, 5, 1, 4], np.int32)}
    constants = {name: each for name, each in given.items() if name != "x"}
    names = ["Sigmoid", "Tanh", "Relu", "Sigmoid", "Relu", "Tanh"]
    model = network("LSTM", feeds, constants, direction="bidirectional", activations=names)
    compare(interpret(load_onnx(model), feeds), rival(model, feeds))


def test_gates_may_be_hard_sigmoids_and_coupled() -> None:
    given = operands("LSTM", 1, True, np.random.default_rng())
    feeds = {"x": given["x"], "lengths": np.array([2, 7, 5, 1, 4], np.int32)}
    constants = {name: each for name, each in given.items() if name != "x"}
    for names, coupled in ((["HardSigmoid", "Tanh", "Relu"], 0), (["HardSigmoid", "Tanh", "Tanh"], 1), (None, 1)):
        options: dict[str, Any] = {"input_forget": coupled} | ({"activations": names} if names else {})
        model = network("LSTM", feeds, constants, **options)
        compare(interpret(load_onnx(model), feeds), rival(model, feeds))


def test_cells_of_gates_that_are_no_sigmoids_are_refused() -> None:
    given = operands("LSTM", 1, False, np.random.default_rng())
    feeds = {"x": given["x"], "lengths": np.array([2, 7, 5, 1, 4], np.int32)}
    constants = {name: each for name, each in given.items() if name != "x"}
    refused: tuple[dict[str, Any], ...] = ({"clip": 0.5}, {"activations": ["Tanh", "Tanh", "Tanh"]})
    for options in refused:
        with pytest.raises(UnsupportedNode, match="the last cells of sequences of different lengths, with clip"):
            load_onnx(network("LSTM", feeds, constants, **options))
    model = network("LSTM", feeds, constants, states=False, clip=0.5)
    compare(interpret(load_onnx(model), feeds), rival(model, feeds))


def test_lengths_beyond_the_longest_are_refused() -> None:
    given = operands("GRU", 1, False, np.random.default_rng())
    feeds, lengths = {"x": given.pop("x")}, np.array([2, 8, 5, 1, 4], np.int32)
    with pytest.raises(ModelError, match=r"sequence_lens: expect numbers up to 7, got \[2, 8, 5, 1, 4\]"):
        load_onnx(network("GRU", feeds, {**given, "lengths": lengths}))
    with pytest.raises(ModelError, match=r"sequence_lens: expect 5 numbers, got shape \(4,\)"):
        load_onnx(network("GRU", feeds, {**given, "lengths": lengths[:4]}))


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_a_run_reads_how_much_is_reversed(axes: tuple[int, int]) -> None:
    rng, (time, batch) = np.random.default_rng(), axes
    x = rng.standard_normal((70, 70, 2)).astype(np.float32)
    node = helper.make_node("ReverseSequence", ["x", "lengths"], ["y"], time_axis=time, batch_axis=batch)
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape),
        helper.make_tensor_value_info("lengths", TensorProto.INT64, [70]),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)
    graph = helper.make_graph([node], "reversed", ports, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds: dict[str, Array] = {"x": x, "lengths": rng.integers(1, 71, 70)}
    compare(interpret(load_onnx(model), feeds), rival(model, feeds), 0)
    known = load_onnx(model, values={"lengths": feeds["lengths"]})
    compare(interpret(known, {"x": x}), rival(model, feeds), 0)


@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (2, 1), (0, 2), (2, 0)])
@pytest.mark.parametrize("sizes", [(6, 5, 7, 4), (1, 5, 3, 1), (5, 1, 1, 9), (1, 1, 1, 1)])
def test_known_lengths_move_rows(axes: tuple[int, int], sizes: tuple[int, ...]) -> None:
    rng, (time, batch) = np.random.default_rng(), axes
    x, lengths = rng.standard_normal(sizes).astype(np.float32), rng.integers(0, sizes[time] + 1, sizes[batch])
    node = helper.make_node("ReverseSequence", ["x", "lengths"], ["y"], time_axis=time, batch_axis=batch)
    port = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)
    graph = helper.make_graph([node], "reversed", [port], [result], [numpy_helper.from_array(lengths, "lengths")])
    model = load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    wanted = np.moveaxis(x.copy(), (time, batch), (0, 1))
    for number, length in enumerate(lengths):
        wanted[:length, number] = wanted[:length, number][::-1]
    wanted = np.moveaxis(wanted, (0, 1), (time, batch))
    np.testing.assert_array_equal(interpret(model, {"x": x})["y"], wanted)
    if abs(time - batch) == 1:
        # An index for each row, not for each element.
        _, constants = model.to_wire()
        assert all(math.prod(array.dims) <= sizes[time] * sizes[batch] for array in constants)
