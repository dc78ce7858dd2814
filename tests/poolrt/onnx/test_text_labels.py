"""Sessions return labels that are texts, as ONNX Runtime does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from poolrt import UnsupportedNode, load_onnx
from poolrt.onnx import InferenceSession
from tests.poolrt.graph.onnx.learned import Forest, table

Array = NDArray[Any]
TEXTS = ["first", "zweites", "dritte Ä"]


def model(nodes: Sequence[onnx.NodeProto], results: Sequence[str], *initializers: onnx.TensorProto) -> onnx.ModelProto:
    """Return a model of a table of six columns; its first result has texts."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 6])
    kinds = (TensorProto.STRING, TensorProto.FLOAT)
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(results, kinds, strict=False)]
    graph = helper.make_graph(list(nodes), "labels", [x], outputs, list(initializers))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def learned(operator: str, results: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, ["x"], list(results), "node", domain="ai.onnx.ml", **attributes)


def assert_like_onnx_runtime(given: onnx.ModelProto) -> None:
    """Raise AssertionError unless a session's results are ONNX Runtime's, for tables of several sizes."""
    rng = np.random.default_rng(3)
    text = given.SerializeToString()
    session, theirs = InferenceSession(text), onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"])
    for rows in (7, 1):
        feeds = {"x": np.round(table(rng, rows), 1)}
        found, expected = session.run(None, feeds), theirs.run(None, feeds)
        assert (found[0].dtype, found[0].shape) == (np.dtype(object), expected[0].shape)
        assert found[0].tolist() == expected[0].tolist()
        for got, want in zip(found[1:], expected[1:], strict=True):
            np.testing.assert_allclose(got, want, 0, 1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_trees_give_labels_of_texts(classes: int) -> None:
    forest = Forest(np.random.default_rng(1), 6, 4, ("BRANCH_LEQ",))
    ids = [0] if classes == 2 else [0, 1, 2]
    attributes = {**forest.attributes("class", lambda *_: ids), "classlabels_strings": TEXTS[:classes]}
    assert_like_onnx_runtime(model([learned("TreeEnsembleClassifier", ["y", "scores"], **attributes)], ["y", "scores"]))


def test_a_linear_classifier_gives_labels_of_texts_and_a_graph_refuses_it() -> None:
    numbers = np.random.default_rng(2).standard_normal(21).tolist()
    attributes = {"coefficients": numbers[:18], "intercepts": numbers[18:], "classlabels_strings": TEXTS}
    given = model([learned("LinearClassifier", ["y", "scores"], **attributes)], ["y", "scores"])
    assert_like_onnx_runtime(given)
    with pytest.raises(UnsupportedNode, match="sessions do"):
        load_onnx(given, shapes={"x": (1, 6)})


def test_numbers_are_replaced_by_texts_and_texts_are_chosen_by_numbers() -> None:
    best = helper.make_node("ArgMax", ["x"], ["best"], axis=1, keepdims=0)
    code = helper.make_node(
        "LabelEncoder", ["best"], ["y"], "code", domain="ai.onnx.ml", keys_int64s=[1, 3, 4], values_strings=TEXTS,
        default_string="none",
    )  # fmt: skip
    assert_like_onnx_runtime(model([best, code], ["y"]))
    code = helper.make_node(
        "LabelEncoder", ["best"], ["y"], "code", domain="ai.onnx.ml", keys_int64s=[5], values_strings=["?"]
    )
    assert_like_onnx_runtime(model([best, code], ["y"]))
    choose = helper.make_node("ArrayFeatureExtractor", ["texts", "best"], ["y"], "choose", domain="ai.onnx.ml")
    texts = numpy_helper.from_array(np.array([*TEXTS, *TEXTS], object), "texts")
    assert_like_onnx_runtime(model([best, choose], ["y"], texts))
