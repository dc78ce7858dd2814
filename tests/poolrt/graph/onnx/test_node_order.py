"""Models whose nodes stand before those whose results they read, as some tools write them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from poolrt import ModelError, load_onnx

from .single_node import runtime
from .test_importer import compute

Array = NDArray[Any]
Shuffle = Callable[[list[onnx.NodeProto]], None]
_OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def _info(name: str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """Return a tensor of float32, or a scalar of another type."""
    return helper.make_tensor_value_info(name, kind, None if kind == TensorProto.FLOAT else ())


def _branch(name: str, nodes: Sequence[onnx.NodeProto], result: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [_info(result)])


def _model(nodes: Sequence[onnx.NodeProto], shuffle: Shuffle) -> onnx.ModelProto:
    """Return a model of ``nodes`` and of a function ``own.Twice``, whose nodes are shuffled."""
    inside = [helper.make_node("Add", ["of", "of"], ["sum"]), helper.make_node("Relu", ["sum"], ["twice"])]
    shuffle(inside)
    function = helper.make_function("own", "Twice", ["of"], ["twice"], inside, [helper.make_opsetid("", 17)])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 4))
    constants = [numpy_helper.from_array(np.array([[0.5], [-1.0], [2.0]], np.float32), "column")]
    graph = helper.make_graph(nodes, "net", [x], [_info("y")], constants)
    return helper.make_model(graph, opset_imports=_OPSETS, functions=[function], ir_version=9)


def _nodes(seed: int, shuffle: Shuffle) -> list[onnx.NodeProto]:
    """Return a random net of sums and functions, of a loop and of branches that read results around them."""
    numbers = random.Random(seed)
    known, nodes = ["x"], []
    for number in range(12):
        name = f"t{number}"
        if number % 3 == 2:
            nodes.append(helper.make_node("Twice", [numbers.choice(known)], [name], domain="own"))
        else:
            nodes.append(helper.make_node("Sub", [numbers.choice(known), numbers.choice([*known, "column"])], [name]))
        known.append(name)
    chosen = [
        helper.make_node("Neg", [numbers.choice(known)], ["negative"]),
        helper.make_node("Add", ["negative", numbers.choice(known)], ["inside"]),
    ]
    shuffle(chosen)
    other = _branch("other", [helper.make_node("Identity", ["x"], ["unchanged"])], "unchanged")
    repeated = [
        helper.make_node("Identity", ["go"], ["goes"]),
        helper.make_node("Abs", ["carried"], ["size"]),
        helper.make_node("Sub", ["size", known[-1]], ["next"]),
    ]
    shuffle(repeated)
    inputs = [_info("pass", TensorProto.INT64), _info("go", TensorProto.BOOL), _info("carried")]
    body = helper.make_graph(repeated, "body", inputs, [_info("goes", TensorProto.BOOL), _info("next")])
    nodes += [
        helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("Constant", [], ["passes"], value=numpy_helper.from_array(np.array(3, np.int64))),
        helper.make_node("If", ["yes"], ["branch"], then_branch=_branch("then", chosen, "inside"), else_branch=other),
        helper.make_node("Loop", ["passes", "yes", "branch"], ["looped"], body=body),
        helper.make_node("Add", ["looped", known[-2]], ["y"]),
    ]
    shuffle(nodes)
    return nodes


def _keep(nodes: list[onnx.NodeProto]) -> None:
    """Leave nodes in order."""


@pytest.mark.parametrize("seed", range(8))
def test_nodes_in_any_order_compute_what_they_compute_in_theirs(seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((3, 4), np.float32)
    # ONNX Runtime refuses some orders: it gets the model in order.
    (expected,) = runtime(_model(_nodes(seed, _keep), _keep), {"x": x})
    shuffle = random.Random(seed).shuffle
    shuffled = _model(_nodes(seed, shuffle), shuffle)
    np.testing.assert_allclose(compute(shuffled, x=x)[0], expected, rtol=1e-6, atol=1e-6)


def test_nodes_that_wait_for_each_other_are_refused() -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "second"),
        helper.make_node("Relu", ["b"], ["y"], "third"),
    ]
    with pytest.raises(ModelError, match=r"node 'first' \(Add, opset 17\) reads 'b', which no node before it computes"):
        load_onnx(_model(nodes, _keep))
