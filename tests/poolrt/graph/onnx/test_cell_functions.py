"""Functions of recurrent cells that are not the usual ones: results are those of ONNX Runtime."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from poolrt import ModelError, load_onnx
from tests.poolrt.graph.interpreter import run_wire

from .single_node import runtime

Array = NDArray[Any]
Made = tuple[onnx.ModelProto, dict[str, Array]]
GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 4, 6
HARD: Final = {"activation_alpha": [0.3], "activation_beta": [0.4]}
CASES: Final[list[tuple[str, dict[str, Any]]]] = [
    ("LSTM", {"activations": ["Sigmoid", "Relu", "Relu"]}),
    ("LSTM", {"activations": ["HardSigmoid", "Tanh", "Tanh"], **HARD}),
    ("LSTM", {"activations": ["HardSigmoid", "Softsign", "Softplus"], "clip": 1.5}),
    ("LSTM", {"activations": ["HardSigmoid", "LeakyRelu", "Elu"], "activation_alpha": [0.3, 0.05, 0.7]}),
    ("LSTM", {"activations": ["Sigmoid", "Affine", "ThresholdedRelu"], "activation_alpha": [0.5, 0.1],
              "activation_beta": [0.2]}),
    ("GRU", {"activations": ["Sigmoid", "Relu"]}),
    ("GRU", {"activations": ["HardSigmoid", "Tanh"], **HARD, "linear_before_reset": 1}),
    ("GRU", {"activations": ["hardsigmoid", "softsign"]}),
    ("RNN", {"activations": ["LeakyRelu"], "activation_alpha": [0.2]}),
    ("RNN", {"activations": ["Sigmoid"]}),
]  # fmt: skip


def model_of(kind: str, directions: int, attributes: dict[str, Any], lengths: bool = False, layout: int = 0) -> Made:
    """Return a model with the states before and after, and its inputs."""
    rng, gates = np.random.default_rng(), GATES[kind]
    state = (BATCH, directions, HIDDEN) if layout else (directions, BATCH, HIDDEN)
    feeds = {"x": (BATCH, STEPS, INPUTS) if layout else (STEPS, BATCH, INPUTS), "h": state}
    fixed = {
        "w": (directions, gates * HIDDEN, INPUTS),
        "r": (directions, gates * HIDDEN, HIDDEN),
        "b": (directions, 2 * gates * HIDDEN),
    }
    names = ["x", "w", "r", "b", "l" if lengths else "", "h"]
    if kind == "LSTM":
        feeds["c"] = state
        names.append("c")
    # Gates without bounds let states grow.
    given = {n: (rng.standard_normal(dims) * 0.3).astype(np.float32) for n, dims in {**feeds, **fixed}.items()}
    results = ["y", "last", "cell"][: 2 + (kind == "LSTM") - (lengths and kind == "LSTM")]
    if directions == 2:
        attributes = {**attributes, "direction": "bidirectional"}
    if layout:
        attributes = {**attributes, "layout": 1}
    node = helper.make_node(kind, names, results, "node", hidden_size=HIDDEN, **attributes)
    stored = [numpy_helper.from_array(given[name], name) for name in fixed]
    if lengths:
        stored.append(numpy_helper.from_array(np.array([2, 5, 3], np.int32), "l"))
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in feeds.items()]
    graph = helper.make_graph([node], "single", declared, [onnx.ValueInfoProto(name=n) for n in results], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made, {name: given[name] for name in feeds}


def compare(made: Made, nodes: int | None = None) -> None:
    model, feeds = made
    graph = load_onnx(model)
    wire = graph.to_wire()
    if nodes is not None:
        assert sum(node[0] == model.graph.node[0].op_type.lower() for node in wire[0]["nodes"]) == nodes
        assert not {"matmul", "eltwise"} & {node[0] for node in wire[0]["nodes"]}
    found = run_wire(*wire, feeds)
    for name, want in zip((each.name for each in model.graph.output), runtime(model, feeds), strict=True):
        np.testing.assert_allclose(found[name], want, rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize(("kind", "attributes"), CASES, ids=str)
def test_cells_have_the_functions_that_are_named(kind: str, attributes: dict[str, Any]) -> None:
    compare(model_of(kind, 1, attributes), nodes=1)


@pytest.mark.parametrize("kind", GATES)
def test_each_direction_has_functions_of_its_own(kind: str) -> None:
    count = {"LSTM": 3, "GRU": 2, "RNN": 1}[kind]
    first, second = ["LeakyRelu", "Relu", "Tanh"][:count], ["LeakyRelu", "Sigmoid", "Softsign"][:count]
    attributes = {"activations": first + second, "activation_alpha": [0.1, 0.3], "clip": 0.8}
    compare(model_of(kind, 2, attributes), nodes=2)
    same = {"activations": first + first, "activation_alpha": [0.1, 0.1]}
    compare(model_of(kind, 2, same), nodes=1)


@pytest.mark.parametrize("kind", GATES)
def test_batches_may_come_first_where_directions_differ(kind: str) -> None:
    count = {"LSTM": 3, "GRU": 2, "RNN": 1}[kind]
    attributes = {"activations": ["Sigmoid"] * count + ["Tanh"] * count}
    first, feeds = model_of(kind, 2, attributes, layout=1)
    found = run_wire(*load_onnx(first).to_wire(), feeds)
    second, _ = model_of(kind, 2, attributes)
    del second.graph.initializer[:]
    second.graph.initializer.extend(first.graph.initializer)
    turned = {name: np.ascontiguousarray(each.transpose(1, 0, 2)) for name, each in feeds.items()}
    wanted = runtime(second, turned)
    for name, want in zip((each.name for each in second.graph.output), wanted, strict=True):
        axes = (2, 0, 1, 3) if name == "y" else (1, 0, 2)
        np.testing.assert_allclose(found[name], want.transpose(axes), rtol=2e-5, atol=2e-5, err_msg=name)


def test_parameters_belong_to_directions_of_uneven_sequences() -> None:
    for kind, names in (("GRU", ["HardSigmoid", "LeakyRelu"]), ("LSTM", ["HardSigmoid", "LeakyRelu", "Elu"])):
        alphas = [0.3, 0.1, 0.6, 0.2, 0.05, 0.9][: 2 * len(names)]
        attributes = {"activations": names * 2, "activation_alpha": alphas, "activation_beta": [0.4, 0.6]}
        compare(model_of(kind, 2, attributes, lengths=True))


def test_another_number_of_functions_is_refused() -> None:
    model, _ = model_of("LSTM", 2, {"activations": ["Sigmoid", "Tanh", "Tanh"]})
    with pytest.raises(ModelError, match="activations: expect 6, got 3"):
        load_onnx(model)
