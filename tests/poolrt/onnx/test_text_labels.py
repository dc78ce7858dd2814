"""Sessions return labels that are texts, and take categories that are, as ONNX Runtime does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from poolrt import UnsupportedNode, load_onnx
from poolrt.onnx import InferenceSession, SessionOptions
from poolrt.onnx.errors import Fail
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.onnx.learned import Forest, table

from .models import session as open_session

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


def assert_like_onnx_runtime(given: onnx.ModelProto, cache: PrimitiveProvider) -> None:
    """Raise AssertionError unless a session's results are ONNX Runtime's, for tables of several sizes."""
    rng = np.random.default_rng(3)
    text = given.SerializeToString()
    session = open_session(text, cache)
    theirs = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"])
    for rows in (7, 1):
        feeds = {"x": np.round(table(rng, rows), 1)}
        found, expected = session.run(None, feeds), theirs.run(None, feeds)
        assert (found[0].dtype, found[0].shape) == (np.dtype(object), expected[0].shape)
        assert found[0].tolist() == expected[0].tolist()
        for got, want in zip(found[1:], expected[1:], strict=True):
            np.testing.assert_allclose(got, want, 0, 1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_trees_give_labels_of_texts(classes: int, cache: PrimitiveProvider) -> None:
    forest = Forest(np.random.default_rng(1), 6, 4, ("BRANCH_LEQ",))
    ids = [0] if classes == 2 else [0, 1, 2]
    attributes = {**forest.attributes("class", lambda *_: ids), "classlabels_strings": TEXTS[:classes]}
    given = model([learned("TreeEnsembleClassifier", ["y", "scores"], **attributes)], ["y", "scores"])
    assert_like_onnx_runtime(given, cache)


def test_labels_that_no_node_reads_are_looked_up_behind_a_run_that_is_repeated(
    cache: PrimitiveProvider,
) -> None:
    forest = Forest(np.random.default_rng(1), 6, 4, ("BRANCH_LEQ",))
    attributes = {**forest.attributes("class", lambda *_: [0, 1, 2]), "classlabels_strings": TEXTS}
    nodes = [learned("TreeEnsembleClassifier", ["y", "scores"], **attributes)]
    options = SessionOptions()
    options.intra_op_num_threads = 1
    session = InferenceSession(model(nodes, ["y", "scores"]).SerializeToString(), options, cache=cache)
    assert [port.type for port in session.get_outputs()] == ["tensor(string)", "tensor(float)"]
    feeds = {"x": table(np.random.default_rng(2), 9)}
    found = session.run(None, feeds)
    repeated = session._repeat(feeds)
    assert repeated is not None
    assert repeated["y"].tolist() == found[0].tolist() == np.array(TEXTS)[found[1].argmax(1)].tolist()
    binding = session.io_binding()
    binding.bind_cpu_input("x", feeds["x"])
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert binding.get_outputs()[0].data_type() == "tensor(string)"
    assert binding.copy_outputs_to_cpu()[0].tolist() == found[0].tolist()
    # Nodes that change shapes may be between.
    nodes += [helper.make_node("Cast", ["y"], ["same"], to=TensorProto.STRING)]
    nodes += [helper.make_node("Reshape", ["same", "row"], ["again"])]
    row = numpy_helper.from_array(np.array([1, -1]), "row")
    other = InferenceSession(model(nodes, ["again", "scores"], row).SerializeToString(), options, cache=cache)
    assert [other.run(["again"], feeds)[0].tolist() for _ in range(3)] == [[found[0].tolist()]] * 3
    assert other._repeat(feeds) is not None
    # Another node reads texts, which are a tensor for it.
    nodes += [helper.make_node("Concat", ["again", "again"], ["twice"], axis=0)]
    other = InferenceSession(model(nodes, ["twice", "scores"], row).SerializeToString(), options, cache=cache)
    assert other.run(["twice"], feeds)[0].tolist() == [found[0].tolist()] * 2


def test_a_users_node_of_any_name_is_computed_as_it_is(cache: PrimitiveProvider) -> None:
    # Given a node of the name that nodes behind labels have, which chooses rows of texts
    nodes = [
        learned("Normalizer", ["normal"], norm="MAX"),
        helper.make_node("Mul", ["normal", "zero"], ["none"]),
        helper.make_node("Cast", ["none"], ["places"], to=TensorProto.INT64),
        helper.make_node("Gather", ["texts", "places"], ["y"], "y/text", axis=0),
    ]
    zero = numpy_helper.from_array(np.zeros((), np.float32), "zero")
    texts = TensorProto(name="texts", data_type=8, dims=(1, 3), string_data=[text.encode() for text in TEXTS])
    session = open_session(model(nodes, ["y"], zero, texts).SerializeToString(), cache)
    # When it runs, then its result is whole rows (of which ONNX Runtime copies the first text)
    (found,) = session.run(None, {"x": table(np.random.default_rng(3), 2)})
    assert found.tolist() == np.broadcast_to(np.array(TEXTS, object), (2, 6, 3)).tolist()


def test_texts_that_there_are_not_are_empty(cache: PrimitiveProvider) -> None:
    best = helper.make_node("ArgMax", ["x"], ["best"], axis=1)
    choose = helper.make_node("ArrayFeatureExtractor", ["texts", "best"], ["chosen"], "choose", domain="ai.onnx.ml")
    flat = helper.make_node("Reshape", ["chosen", "flat"], ["y"])
    constants = [
        numpy_helper.from_array(np.array(TEXTS, object), "texts"), numpy_helper.from_array(np.array([-1]), "flat")
    ]  # fmt: skip
    session = open_session(model([best, choose, flat], ["y"], *constants).SerializeToString(), cache)
    x = np.eye(6, dtype=np.float32)
    for _ in range(3):
        assert session.run(None, {"x": x})[0].tolist() == [*TEXTS, "", "", ""]
        assert session.run(None, {"x": x[:3]})[0].tolist() == TEXTS


def test_a_linear_classifier_gives_labels_of_texts_and_a_graph_refuses_it(cache: PrimitiveProvider) -> None:
    numbers = np.random.default_rng(2).standard_normal(21).tolist()
    attributes = {"coefficients": numbers[:18], "intercepts": numbers[18:], "classlabels_strings": TEXTS}
    given = model([learned("LinearClassifier", ["y", "scores"], **attributes)], ["y", "scores"])
    assert_like_onnx_runtime(given, cache)
    with pytest.raises(UnsupportedNode, match="sessions do"):
        load_onnx(given, shapes={"x": (1, 6)})


def test_numbers_are_replaced_by_texts_and_texts_are_chosen_by_numbers(cache: PrimitiveProvider) -> None:
    best = helper.make_node("ArgMax", ["x"], ["best"], axis=1, keepdims=0)
    code = helper.make_node(
        "LabelEncoder", ["best"], ["y"], "code", domain="ai.onnx.ml", keys_int64s=[1, 3, 4], values_strings=TEXTS,
        default_string="none",
    )  # fmt: skip
    assert_like_onnx_runtime(model([best, code], ["y"]), cache)
    code = helper.make_node(
        "LabelEncoder", ["best"], ["y"], "code", domain="ai.onnx.ml", keys_int64s=[5], values_strings=["?"]
    )
    assert_like_onnx_runtime(model([best, code], ["y"]), cache)
    choose = helper.make_node("ArrayFeatureExtractor", ["texts", "best"], ["y"], "choose", domain="ai.onnx.ml")
    texts = numpy_helper.from_array(np.array([*TEXTS, *TEXTS], object), "texts")
    assert_like_onnx_runtime(model([best, choose], ["y"], texts), cache)


def test_categories_that_are_texts_become_columns_and_numbers(cache: PrimitiveProvider) -> None:
    kind = helper.make_tensor_value_info("kind", TensorProto.STRING, ["rows", 1])
    age = helper.make_tensor_value_info("age", TensorProto.FLOAT, ["rows", 1])

    def node(operator: str, reads: Sequence[str], result: str, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(operator, list(reads), [result], result, domain="ai.onnx.ml", **attributes)

    nodes = [
        node("OneHotEncoder", ["kind"], "wide", cats_strings=TEXTS, zeros=1),
        helper.make_node("Reshape", ["wide", "flat"], ["columns"]),
        node("LabelEncoder", ["kind"], "place", keys_strings=TEXTS, values_floats=[0.5, 2.0, -1.0], default_float=9.0),
        node("LabelEncoder", ["kind"], "number", keys_strings=TEXTS[:2], values_int64s=[7, 8]),
        helper.make_node("Cast", ["number"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["columns", "place", "real", "age"], ["table"], axis=1),
        node("Scaler", ["table"], "y", offset=[0.5], scale=[2.0]),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    flat = numpy_helper.from_array(np.asarray([-1, 3], np.int64), "flat")
    graph = helper.make_graph(nodes, "mixed", [kind, age], [result], [flat])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    text = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = open_session(text, cache)
    theirs = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"])
    for texts in ([*TEXTS, "other", ""], TEXTS[1:2]):
        given = np.array(texts, object)[:, None]
        feeds = {"kind": given, "age": np.arange(len(texts), dtype=np.float32)[:, None]}
        assert np.array_equal(session.run(None, feeds)[0], theirs.run(None, feeds)[0])


def test_a_text_that_is_no_category_fails_where_the_model_says_so(cache: PrimitiveProvider) -> None:
    kind = helper.make_tensor_value_info("kind", TensorProto.STRING, ["rows"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("OneHotEncoder", ["kind"], ["y"], domain="ai.onnx.ml", cats_strings=TEXTS, zeros=0)
    graph = helper.make_graph([node], "strict", [kind], [result])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    text = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = open_session(text, cache)
    assert session.run(None, {"kind": np.array(TEXTS[:1], object)})[0].tolist() == [[1.0, 0.0, 0.0]]
    with pytest.raises(Fail, match="'other' is no category"):
        session.run(None, {"kind": np.array(["other"], object)})


@pytest.mark.parametrize(
    ("version", "attributes"),
    [
        (4, {"keys_strings": TEXTS, "values_strings": ["x", "y", "z"], "default_string": "no"}),
        (4, {"keys_strings": TEXTS[:2], "values_strings": ["same", "same"]}),
        (1, {"classes_strings": TEXTS, "default_int64": -3}),
        (4, {"keys_tensor": numpy_helper.from_array(np.array(TEXTS[1:], object)),
             "values_tensor": numpy_helper.from_array(np.array([3, 4], np.int16)),
             "default_tensor": numpy_helper.from_array(np.array([9], np.int16))}),
    ],
    ids=["texts", "texts without a default", "classes", "tensors"],
)  # fmt: skip
def test_texts_are_replaced_by_texts_or_by_numbers(
    version: int, attributes: Mapping[str, Any], cache: PrimitiveProvider
) -> None:
    node = helper.make_node("LabelEncoder", ["x"], ["y"], "code", domain="ai.onnx.ml", **attributes)
    ports = [helper.make_tensor_value_info("x", TensorProto.STRING, ["rows", 2]), onnx.ValueInfoProto(name="y")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    graph = helper.make_graph([node], "single", ports[:1], ports[1:])
    text = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    given = {"x": np.array([[TEXTS[0], "other"], [TEXTS[2], TEXTS[1]]], object)}
    (want,) = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"]).run(None, given)
    (found,) = open_session(text, cache).run(None, given)
    assert (found.tolist(), found.dtype) == (want.tolist(), want.dtype)
