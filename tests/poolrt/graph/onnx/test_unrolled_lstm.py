"""LSTM with options: those that a graph's operation does not have are a few operations a step. All compute ONNX's definition."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from poolrt import load_onnx
from poolrt.graph.passes import optimize
from tests.poolrt.graph.interpreter import run_wire

Array = NDArray[Any]
NAMES = ("x", "w", "r", "b", "", "h", "c", "p")
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Relu": lambda x: np.maximum(x, 0),
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
}


def drawn(seed: int, steps: int, batch: int, directions: int, hidden: int, some: tuple[str, ...]) -> dict[str, Array]:
    """Return operands, of the optional ones those that are named."""
    rng, inputs = np.random.default_rng(seed), 3
    sizes = {
        "x": (steps, batch, inputs), "w": (directions, 4 * hidden, inputs), "r": (directions, 4 * hidden, hidden),
        "b": (directions, 8 * hidden), "h": (directions, batch, hidden), "c": (directions, batch, hidden),
        "p": (directions, 3 * hidden),
    }  # fmt: skip
    return {
        name: rng.standard_normal(dims).astype(np.float32)
        for name, dims in sizes.items()
        if name in ("x", "w", "r", *some)
    }


def defined(given: dict[str, Array], backwards: list[bool], attributes: dict[str, Any]) -> tuple[Array, Array, Array]:
    """Return what ONNX's definition says, in float64."""
    wide = {name: each.astype(np.float64) for name, each in given.items()}
    steps, batch, _ = wide["x"].shape
    hidden = wide["r"].shape[2]
    clip = attributes.get("clip", np.inf)
    names = attributes.get("activations", ["Sigmoid", "Tanh", "Tanh"] * len(backwards))
    results, last, cells = np.zeros((steps, len(backwards), batch, hidden)), [], []
    for number, is_backwards in enumerate(backwards):
        gate, candidate, result = (FUNCTIONS[name] for name in names[3 * number : 3 * number + 3])
        first, second = wide["b"][number].reshape(2, -1) if "b" in wide else (0.0, 0.0)
        peep = wide["p"][number].reshape(3, hidden) if "p" in wide else np.zeros((3, hidden))
        h, c = (wide[name][number] if name in wide else np.zeros((batch, hidden)) for name in ("h", "c"))
        for step in range(steps - 1, -1, -1) if is_backwards else range(steps):
            total = wide["x"][step] @ wide["w"][number].T + h @ wide["r"][number].T + first + second
            i, o, f, g = np.split(total, 4, 1)
            i = gate(np.clip(i + peep[0] * c, -clip, clip))
            f = 1 - i if attributes.get("input_forget") else gate(np.clip(f + peep[2] * c, -clip, clip))
            c = f * c + i * candidate(np.clip(g, -clip, clip))
            h = gate(np.clip(o + peep[1] * c, -clip, clip)) * result(c)
            results[step, number] = h
        last.append(h)
        cells.append(c)
    return results, np.stack(last), np.stack(cells)


def model_of(given: dict[str, Array], direction: str, attributes: dict[str, Any]) -> onnx.ModelProto:
    names = [name if name in given else "" for name in NAMES]
    hidden = given["r"].shape[2]
    node = helper.make_node(
        "LSTM", names, ["y", "last", "cell"], "node", direction=direction, hidden_size=hidden, **attributes
    )
    read = [name for name in ("x", "h", "c") if name in given]
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, given[name].shape) for name in read]
    fixed = [numpy_helper.from_array(each, name) for name, each in given.items() if name not in read]
    results = [onnx.ValueInfoProto(name=name) for name in ("y", "last", "cell")]
    graph = helper.make_graph([node], "single", declared, results, fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


OPTIONS = [
    ({"clip": 0.6}, ()), ({"clip": 0.6}, ("p", "b")), ({}, ("p", "h", "c")), ({"input_forget": 1}, ("b", "h", "c")),
    ({"input_forget": 1, "clip": 0.5}, ("p", "b", "h")), ({"activations": ["Sigmoid", "Relu", "Tanh"]}, ("b", "c")),
    ({"activations": ["Tanh", "Sigmoid", "Relu"]}, ("p", "b", "h", "c")), ({"input_forget": 1}, ("p", "c")),
    ({"input_forget": 1, "activations": ["HardSigmoid", "Tanh", "Tanh"]}, ("p", "b", "c")),
    ({"input_forget": 1, "activations": ["Tanh", "Relu", "Sigmoid"]}, ("p", "b", "c")),
]  # fmt: skip


@pytest.mark.parametrize("case", OPTIONS, ids=str)
def test_cells_with_options_compute_the_definition(case: tuple[dict[str, Any], tuple[str, ...]]) -> None:
    attributes, some = case
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    for (direction, backwards), (steps, batch) in itertools.product(directions.items(), ((1, 1), (4, 3))):
        own = dict(attributes)
        if "activations" in own:
            own["activations"] = own["activations"] * len(backwards)
        given = drawn(steps + batch, steps, batch, len(backwards), 5, some)
        graph = load_onnx(model_of(given, direction, own))
        found = run_wire(*graph.to_wire(), {name: given[name] for name in ("x", "h", "c") if name in given})
        for name, want in zip(("y", "last", "cell"), defined(given, backwards, own), strict=True):
            np.testing.assert_allclose(found[name], want, atol=2e-5, err_msg=f"{name} {direction} {steps}")


def test_a_step_is_few_operations_on_all_gates() -> None:
    others = {"activations": ["Tanh", "Relu", "Tanh"], "input_forget": 1}
    for attributes, some, most in (({**others, "clip": 0.6}, (), 9), (others, ("p",), 13)):
        counts = [
            len([n for n in load_onnx(model_of(drawn(1, steps, 2, 1, 5, some), "forward", attributes)).to_wire()[0]["nodes"]
                 if n[0] in ("matmul", "binary", "eltwise")])
            for steps in (10, 20)
        ]  # fmt: skip
        assert counts[1] - counts[0] <= 10 * most


def test_peepholes_and_coupled_gates_are_operands_of_the_operation() -> None:
    hard = {"activations": ["HardSigmoid", "Relu", "Tanh"]}
    for attributes in ({}, {"clip": 0.6}, {"input_forget": 1}, {"input_forget": 1, **hard}):
        graph = load_onnx(model_of(drawn(1, 600, 2, 1, 5, ("p", "b")), "forward", attributes))
        kinds = [node.kind for node in optimize(graph.to_ir()).nodes]
        assert kinds.count("lstm") == 1
        assert not {"matmul", "binary", "eltwise"} & {*kinds}
