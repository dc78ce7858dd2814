"""Operands and results without a name: an empty name of one node is no name of another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from poolrt import UnsupportedNode, load_onnx

from .node_tests import Array, interpret

node = helper.make_node


def model_of(nodes: Sequence[onnx.NodeProto], **constants: Array) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3, 8]) for name in "xy")
    tensors = [numpy_helper.from_array(each, name) for name, each in constants.items()]
    graph = helper.make_graph(list(nodes), "names", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_results_that_are_left_out_are_not_read_by_operands_that_are() -> None:
    # As ONNX Runtime's optimiser writes a sum that later nodes read: statistics of a normalisation have no names.
    rng = np.random.default_rng()
    nodes = [
        node("Clip", ["x", "", "most"], ["a"]),
        node("SkipLayerNormalization", ["a", "x", "scale"], ["b", "", "", "sum"], domain="com.microsoft"),
        node("Add", ["b", "sum"], ["y"]),
    ]
    model = model_of(nodes, most=np.array(0.5, np.float32), scale=rng.random(8, np.float32))
    feeds = {"x": rng.standard_normal((2, 3, 8)).astype(np.float32)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(
        interpret(load_onnx(model), feeds)["y"], session.run(None, feeds)[0], rtol=1e-5, atol=1e-6
    )


def test_nodes_that_leave_operands_out_are_still_looked_at_behind_unsupported_ones() -> None:
    nodes = [
        node("Missing", ["x"], ["a", ""], domain="own"),
        node("Dropout", ["x", "", "yes"], ["b"]),
        node("Add", ["a", "b"], ["y"]),
    ]
    with pytest.raises(UnsupportedNode) as raised:
        load_onnx(model_of(nodes, yes=np.array(True)))
    assert [use.reason for use in raised.value.uses] == [
        "poolrt has no such operator of domain own",
        "training_mode is true",
    ]
