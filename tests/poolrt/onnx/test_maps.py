"""Sessions return the maps of `ZipMap` as ONNX Runtime does: a dict of numbers by label for each row."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import poolrt
from poolrt import UnsupportedNode, load_onnx
from poolrt.onnx import InferenceSession, InvalidArgument, InvalidGraph, OrtValue
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.onnx.learned import table

from .models import session as open_session

Labels = Sequence[int] | Sequence[str]
TEXTS = ("zweite Ä", "first", "third", "")


def classifier(labels: Labels, columns: int | None = None) -> bytes:
    """Return a model as skl2onnx writes it: a linear classifier, whose chances are zipped with its labels."""
    rng = np.random.default_rng(len(labels))
    classes, is_text = columns or len(labels), isinstance(labels[0], str)
    linear: dict[str, Any] = {
        "coefficients": rng.standard_normal(classes * 6).tolist(), "intercepts": rng.standard_normal(classes).tolist(),
        "post_transform": "SOFTMAX", "classlabels_strings" if is_text else "classlabels_ints": (*labels, *labels)[:classes],
    }  # fmt: skip
    zipped: dict[str, Any] = {"classlabels_strings" if is_text else "classlabels_int64s": labels}
    nodes = [
        helper.make_node("LinearClassifier", ["x"], ["label", "raw"], "linear", domain="ai.onnx.ml", **linear),
        helper.make_node("Normalizer", ["raw"], ["chances"], "l1", domain="ai.onnx.ml", norm="L1"),
        helper.make_node("ZipMap", ["chances"], ["maps"], "zip", domain="ai.onnx.ml", **zipped),
    ]
    kind = TensorProto.STRING if is_text else TensorProto.INT64
    number = helper.make_tensor_type_proto(TensorProto.FLOAT, ())
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(kind, number))
    outputs = [
        helper.make_tensor_value_info("label", kind, [None]),
        helper.make_value_info("maps", maps),
        helper.make_tensor_value_info("chances", TensorProto.FLOAT, None),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 6])
    graph = helper.make_graph(nodes, "classifier", [x], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("labels", [(0, 1), (5, -2, 9), TEXTS[:2], TEXTS], ids=str)
def test_chances_by_label_are_those_of_onnx_runtime(labels: Labels, cache: PrimitiveProvider) -> None:
    text = classifier(labels)
    session = open_session(text, cache)
    theirs = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"])
    described = [[(each.name, each.type) for each in made.get_outputs()] for made in (session, theirs)]
    assert described[0] == described[1]
    # Runs of the same sizes are repeated as they were.
    for rows in (5, 5, 5, 1):
        feed = {"x": table(np.random.default_rng(rows), rows)}
        (found,), (want,) = session.run(["maps"], feed), theirs.run(["maps"], feed)
        assert type(found) is list
        assert [list(each) for each in found] == [list(each) for each in want]
        assert {type(chance) for each in found for chance in each.values()} <= {float}
        for got, expected in zip(found, want, strict=True):
            np.testing.assert_allclose(list(got.values()), list(expected.values()), 0, 1e-6)
        label, maps, chances = session.run(None, feed)
        assert label.tolist() == theirs.run(["label"], feed)[0].tolist()
        assert maps == [dict(zip(labels, row, strict=True)) for row in chances.tolist()]


def test_a_run_on_a_thread_of_its_own_returns_maps(cache: PrimitiveProvider) -> None:
    session, results = open_session(classifier((4, 2, 3)), cache), queue.Queue[Any]()
    feed = {"x": table(np.random.default_rng(1), 3)}
    session.run_async(["maps"], feed, lambda found, data, error: results.put((found, error)), None)
    assert results.get(timeout=60) == (session.run(["maps"], feed), "")


def test_maps_are_no_values_in_memory(cache: PrimitiveProvider) -> None:
    session, feed = open_session(classifier((4, 2)), cache), {"x": np.zeros((1, 6), np.float32)}
    with pytest.raises(InvalidArgument, match=r"output maps is of type seq\(map\(int64,tensor\(float\)\)\)"):
        session.run_with_ort_values(["maps"], {"x": OrtValue(feed["x"])})
    assert session.run_with_ort_values(["label"], {"x": OrtValue(feed["x"])})[0].shape() == [1]
    with pytest.raises(InvalidArgument, match="output maps is of type"):
        session.io_binding().bind_output("maps")
    with pytest.raises(InvalidArgument, match="output maps is of type"):
        session.io_binding().bind_ortvalue_output("maps", OrtValue(feed["x"]))


def test_labels_for_other_columns_are_refused(cache: PrimitiveProvider) -> None:
    session = open_session(classifier((4, 2), columns=3), cache)
    with pytest.raises(InvalidGraph, match=r"ZipMap has 2 labels for a tensor of shape \(1, 3\)"):
        session.run(None, {"x": np.zeros((1, 6), np.float32)})


def test_a_zip_without_labels_is_refused() -> None:
    model = onnx.load_from_string(classifier((4, 2)))
    del model.graph.node[2].attribute[:]
    with pytest.raises(InvalidGraph, match=r"'zip' \(ZipMap\): expect labels"):
        InferenceSession(model)


def test_a_graph_refuses_maps_and_says_what_has_them() -> None:
    with pytest.raises(UnsupportedNode, match=r"Sessions return them.*zipmap=False"):
        load_onnx(classifier((4, 2)), shapes={"x": (1, 6)})


@pytest.mark.slow
def test_a_session_on_a_pool_returns_maps(tmp_path_factory: pytest.TempPathFactory, cache: PrimitiveProvider) -> None:
    home = tmp_path_factory.mktemp("home")
    settings: dict[str, Any] = {"home": str(home), "redis_url": f"unix://{home}/none.sock", "arena_bytes": 1 << 26}
    text, feed = classifier(TEXTS[:3]), {"x": table(np.random.default_rng(2), 4)}
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        found = InferenceSession(text, pool=pool).run(["maps"], feed)
    assert found == open_session(text, cache).run(["maps"], feed)
