"""Nodes that are read once have the fields of their messages, and the names that their branches read."""

from __future__ import annotations

from onnx import TensorProto, helper

from poolrt.graph.onnx.read_node import ReadNode, names_read, read_nodes


def test_a_node_that_was_read_has_its_messages_fields_and_the_names_of_its_branches() -> None:
    result = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    inner = helper.make_graph([helper.make_node("Add", ["a", "b"], ["r"])], "inner", [], [result])
    proto = helper.make_node("If", ["c", ""], ["y"], "choice", then_branch=inner, else_branch=inner)
    (node,) = read_nodes([proto])
    assert (node.name, node.op_type, node.domain) == ("choice", "If", "")
    assert (node.input, node.output) == (("c", ""), ("y",))
    assert node.reads == names_read([proto]) == names_read([node]) == {"a", "b", "c", "r"}
    assert read_nodes([node])[0] is node


def test_the_values_of_attributes_are_read_once() -> None:
    node = ReadNode(helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0]))
    values = node.values("y")
    assert values == {"perm": [1, 0]}
    assert node.values("y") is values
