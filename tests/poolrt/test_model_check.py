"""What a check says of a model: each node's end, fallbacks, open sizes and memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import poolrt
from poolrt.model_check import ModelCheck, check_model
from poolrt.settings import Settings
from tests.acceptance.networks import small_model
from tests.poolrt.graph.onnx.transformers import bert


def _check(model: Any, **arguments: Any) -> ModelCheck:
    return check_model(model, settings=Settings.load(threads=1, workers=1), **arguments)


def _model(nodes: list[Any], dims: tuple[int | str, ...], **constants: Any) -> Any:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    arrays = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "checked", [x], [y], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _named(check: ModelCheck) -> list[list[str]]:
    return [[str(node) for node in nodes] for nodes in check.plan.nodes]


def test_each_node_of_a_model_has_one_end() -> None:
    # Given a model with constants to fold, a pattern, attention, views and a node without an effect
    check = _check(bert())
    # Then a node is in one step, or it is a view, folded or removed
    plan = check.plan
    listed = [str(node) for nodes in (*plan.nodes, plan.views, plan.folded, plan.removed) for node in nodes]
    assert len(listed) == len(set(listed)) == sum(check.operators.values())
    assert {node.operator for node in plan.folded} >= {"Shape", "Slice", "Concat"}
    assert [node.operator for node in plan.removed] == ["Identity"]
    together = {" ".join(node.operator for node in nodes) for nodes in plan.nodes if len(nodes) > 1}
    assert together >= {"MatMul Div Add Softmax MatMul", "Div Erf Add Mul Mul", "MatMul Add"}
    # Nodes that compute are not taken for the views that passes leave in their places
    assert {node.operator for node in plan.views} <= {"Reshape", "Transpose", "Unsqueeze", "Gather"}
    assert {str(port) for port in check.inputs} == {"ids int64[batch=1, 7]", "mask int64[batch=1, 7]"}


def test_fused_nodes_name_their_step_and_the_weights_are_counted_as_they_are_kept() -> None:
    check = _check(small_model())
    shared = [nodes for nodes in _named(check) if len(nodes) > 1]
    assert shared == [["a (Conv)", "b (Relu)"]]
    assert check.plan.fused == 2
    assert check.memory.arena == 4 * (3 * 32 * 32 + 40)
    # Blocked layouts may pad channels
    assert check.memory.weights >= 4 * (16 * 27 + 24 * 144 + 40 * 24 + 40)
    assert check.memory.workspace > 0


def test_an_operator_without_a_form_of_its_own_is_named_as_expanded() -> None:
    check = _check(_model([helper.make_node("Shrink", ["x"], ["y"], name="odd")], (2, 3)))
    assert [str(node) for node in check.plan.expanded] == ["odd (Shrink)"]
    assert {node for nodes in check.plan.nodes for node in nodes} == set(check.plan.expanded)


def test_a_step_of_a_reference_is_named() -> None:
    g = poolrt.Graph("plain", implementation="ref:")
    g.output("y", g.eltwise(g.input("x", (2, 3)), "tanh", name="slow"))
    check = _check(g)
    assert [step.name for step in check.plan.references] == ["slow"]
    assert _named(check) == [["slow (eltwise)"]]


def test_references_within_a_nested_implementation_are_named() -> None:
    # Given a convolution that is computed as a product
    g = poolrt.Graph("nested", implementation="nested:")
    x = g.input("x", (1, 16, 6, 6))
    g.output("y", g.convolution(x, np.ones((16, 16, 3, 3), np.float32), padding=1, name="conv"))
    (step,) = [each for each in _check(g).plan.listing.steps if each.name == "conv"]
    assert step.implementation == "nested:matmul"
    assert step.nested == ("native:tiles",)
    # Then it is a fallback only if a reference computes a part of it
    assert not step.is_reference
    assert replace(step, nested=("native:tiles", "ref:reorder")).is_reference


def test_casts_that_are_steps_have_the_names_of_their_nodes() -> None:
    nodes = [helper.make_node("Cast", ["x"], ["h"], name="down", to=TensorProto.FLOAT16)]
    nodes.append(helper.make_node("Cast", ["h"], ["y"], name="up", to=TensorProto.FLOAT))
    check = _check(_model(nodes, ("N", 3)), batch=2)
    assert _named(check) == [["down (Cast)"], ["up (Cast)"]]
    assert str(check.inputs[0]) == "x float32[N=2, 3]"
    assert check.data_types == {"float32": 2, "float16": 1}


def test_an_unsupported_model_and_sizes_beside_a_graph_are_refused() -> None:
    with pytest.raises(poolrt.UnsupportedNode, match="FusedX"):
        _check(_model([helper.make_node("FusedX", ["x"], ["y"], domain="com.example")], (2, 2)))
    g = poolrt.Graph("small")
    g.output("y", g.eltwise(g.input("x", (2, 3)), "tanh"))
    with pytest.raises(TypeError, match="are for ONNX models"):
        _check(g, batch=2)


def test_a_model_that_is_read_from_bytes_is_checked_too() -> None:
    check = _check(onnx.load_model_from_string(small_model().SerializeToString()))
    assert (check.engine, check.threads, check.name) == ("cpu", 1, "small")
