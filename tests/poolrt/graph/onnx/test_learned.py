"""The operators of ``ai.onnx.ml`` compute what ONNX Runtime computes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from poolrt import Executor, ModelError, UnsupportedNode, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.interpreter import run_wire
from tests.poolrt.onnx.models import session

from .learned import CASES, Case, Forest, linked, table

Array = NDArray[Any]


def expected(case: Case) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    rival = onnxruntime.InferenceSession(case.model().SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(case.outputs, rival.run(list(case.outputs), dict(case.inputs)), strict=True))


def assert_close(case: Case, found: Mapping[str, Array]) -> None:
    """Raise AssertionError unless results agree: whole numbers, such as labels, exactly."""
    for name, want in expected(case).items():
        got = found[name]
        assert got.shape == want.shape, (case.operator, name)
        if want.dtype.kind == "i":
            assert np.array_equal(got, want), case
        else:
            reach = max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0.0)))
            np.testing.assert_allclose(got, want, 0, case.tolerance * reach, err_msg=str(case)[:300])


@pytest.mark.parametrize("family", CASES)
def test_an_operator_computes_what_onnx_runtime_does(family: str) -> None:
    for case in CASES[family](zlib.crc32(family.encode())):
        assert_close(case, run_wire(*load_onnx(case.model()).to_wire(), dict(case.inputs)))


@pytest.mark.parametrize("family", CASES)
def test_tables_without_rows_give_results_without_rows(family: str, cache: PrimitiveProvider) -> None:
    for case in CASES[family](5)[::3]:
        rows = next(iter(case.inputs.values())).shape[0]
        inputs = {name: each[:0] if len(each) == rows else each for name, each in case.inputs.items()}
        found = session(replace(case, inputs=inputs).model(), cache).run(None, inputs)
        for got, (name, want) in zip(found, expected(case).items(), strict=True):
            assert (got.shape, got.dtype) == ((0, *want.shape[1:]), want.dtype), (case.operator, name)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("family", CASES)
def test_an_operator_is_executed(family: str, part: int, cache: PrimitiveProvider) -> None:
    for case in CASES[family](5)[part::4]:
        found = Executor(load_onnx(case.model()), cache=cache).run(**case.inputs)
        assert_close(case, found)
        assert {name: each.dtype for name, each in found.items()} == {
            name: each.dtype for name, each in expected(case).items()
        }


def test_trees_are_executed(cache: PrimitiveProvider) -> None:
    rng = np.random.default_rng(1)
    forest = Forest(rng, 12, 6, ("BRANCH_LEQ",))
    attributes = {**forest.attributes("target", lambda *_: [0]), "n_targets": 1}
    case = Case("TreeEnsembleRegressor", {"x": table(rng, 33)}, attributes)
    assert_close(case, Executor(load_onnx(case.model()), cache=cache).run(**case.inputs))


@pytest.mark.parametrize("rows", [1, 64])
def test_an_ensemble_is_three_steps_for_any_number_of_rows(rows: int) -> None:
    rng = np.random.default_rng(2)
    forest = Forest(rng, 8, 6, ("BRANCH_LEQ",))
    attributes = {**forest.attributes("target", lambda *_: [0]), "n_targets": 1}
    x = table(rng, rows)
    x[:, ::2] = np.nan
    case = Case("TreeEnsembleRegressor", {"x": x}, attributes)
    graph = load_onnx(case.model())
    assert_close(case, run_wire(*graph.to_wire(), dict(case.inputs)))
    # Leaves, their weights, and sums of these
    assert graph.node_count == 3


def changed(**attributes: Any) -> onnx.ModelProto:
    """Return a model with one tree of a single decision, some of whose attributes are others."""
    given = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0], "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0], "n_targets": 1,
    }  # fmt: skip
    return Case("TreeEnsembleRegressor", {"x": np.zeros((2, 3), np.float32)}, {**given, **attributes}).model()


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"nodes_truenodeids": [7, 0, 0]}, "tree 0 has no node 7"),
        ({"nodes_truenodeids": [0, 0, 0]}, "levels"),
        ({"nodes_featureids": [3, 0, 0]}, "expect columns 0 to 2"),
        ({"nodes_values": [0.5]}, "3 nodes with 3 modes and 1 values"),
        ({"nodes_modes": ["BRANCH_MEMBER", "LEAF", "LEAF"]}, "mode BRANCH_MEMBER"),
        ({"target_nodeids": [1, 9]}, "tree 0 has no node 9"),
        ({"target_ids": [0, 1]}, "target_ids: expect numbers 0 to 0"),
        ({"aggregate_function": "MODE"}, "aggregate_function"),
    ],
)
def test_trees_that_are_not_whole_are_refused(attributes: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        load_onnx(changed(**attributes))


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"tree_roots": [9]}, "tree_roots: expect different numbers 0 to"),
        ({"tree_roots": [0, 0]}, "tree_roots: expect different numbers 0 to"),
        ({"nodes_featureids": [0]}, "nodes_featureids: expect 3 numbers, got 1"),
        ({"nodes_truenodeids": [7, 0, 0]}, "nodes_truenodeids: there is no node 7"),
        ({"nodes_falsenodeids": [2, 0, 9]}, "nodes_falsenodeids: there is no leaf 9"),
        ({"nodes_truenodeids": [0, 0, 0]}, "levels"),
        ({"tree_roots": [0, 1]}, "two trees have one node"),
        ({"leaf_targetids": [0, 1, 2]}, "3 nodes with 3 splits, 3 leaves with 4 weights"),
        ({"leaf_targetids": [0, 1, 2, 0]}, "target_ids: expect numbers 0 to 1"),
        ({"aggregate_function": 4}, "aggregate_function: expect 0 to 3, got 4"),
        ({"post_transform": 4}, "post_transform PROBIT"),
        ({"nodes_modes": numpy_helper.from_array(np.asarray([0, 6, 0], np.uint8))}, "membership_values is missing"),
        ({"nodes_modes": numpy_helper.from_array(np.asarray([0, 7, 0], np.uint8))}, "nodes_modes: expect numbers 0 to 6"),
    ],
)  # fmt: skip
def test_linked_trees_that_are_not_whole_are_refused(attributes: Mapping[str, Any], reason: str) -> None:
    given = {
        "tree_roots": [0], "nodes_featureids": [0, 1, 2], "nodes_truenodeids": [1, 0, 2], "nodes_falsenodeids": [2, 1, 3],
        "nodes_trueleafs": [0, 1, 1], "nodes_falseleafs": [0, 1, 1], "leaf_targetids": [0, 1, 1, 0], "n_targets": 2,
        "nodes_modes": numpy_helper.from_array(np.zeros(3, np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.zeros(3, np.float32)),
        "leaf_weights": numpy_helper.from_array(np.ones(4, np.float32)),
    }  # fmt: skip
    x = {"x": np.zeros((2, 3), np.float32)}
    load_onnx(Case("TreeEnsemble", x, given, version=5).model())
    with pytest.raises(ModelError, match=reason):
        load_onnx(Case("TreeEnsemble", x, {**given, **attributes}, version=5).model())


def test_linked_trees_have_the_transforms_of_the_standard() -> None:
    # ONNX Runtime takes 1 for LOGISTIC and 2 for SOFTMAX.
    attributes = linked(Forest(np.random.default_rng(4), 4, 3, ("BRANCH_LEQ",)), 3, "float32")
    x = {"x": table(np.random.default_rng(5), 9)}

    def found(kind: int) -> Array:
        case = Case("TreeEnsemble", x, {**attributes, "post_transform": kind}, version=5)
        return np.asarray(run_wire(*load_onnx(case.model()).to_wire(), x)["y"])

    powers = np.exp(found(0))
    np.testing.assert_allclose(found(1), powers / powers.sum(1, keepdims=True), 1e-5)
    np.testing.assert_allclose(found(2), powers / (1 + powers), 1e-5)


def test_a_decision_at_the_limit_goes_the_way_that_the_mode_says() -> None:
    x = np.asarray([[-1.0, 0, 0], [0.5, 0, 0], [np.nextafter(np.float32(0.5), np.float32(1)), 0, 0]], np.float32)
    for mode, ways in (("LEQ", "112"), ("LT", "122"), ("GTE", "211"), ("GT", "221"), ("EQ", "212"), ("NEQ", "121")):
        model = changed(nodes_modes=[f"BRANCH_{mode}", "LEAF", "LEAF"])
        graph = load_onnx(model, shapes={"x": x.shape})
        found = run_wire(*graph.to_wire(), {"x": x})["y"]
        assert found.reshape(-1).tolist() == [float(each) for each in ways], mode


@pytest.mark.parametrize(
    ("classes", "numbers", "reason"), [(3, 2, "2 and 2 numbers for 3 pairs"), (33, 528, "chances of 33 classes")]
)
def test_chances_of_other_pairs_and_of_too_many_classes_are_refused(classes: int, numbers: int, reason: str) -> None:
    attributes = {
        "coefficients": [1.0] * (classes - 1) * classes, "vectors_per_class": [1] * classes,
        "support_vectors": [1.0] * 6 * classes, "rho": [0.5] * (classes * (classes - 1) // 2),
        "classlabels_ints": list(range(classes)), "prob_a": [-1.0] * numbers, "prob_b": [0.0] * numbers,
    }  # fmt: skip
    case = Case("SVMClassifier", {"x": np.zeros((1, 6), np.float32)}, attributes, ("y", "scores"))
    with pytest.raises(ModelError, match=reason):
        load_onnx(case.model())


def test_labels_that_are_texts_are_refused() -> None:
    attributes = {"coefficients": [1.0] * 12, "classlabels_strings": ["a", "b"]}
    case = Case("LinearClassifier", {"x": np.zeros((1, 6), np.float32)}, attributes, ("y", "scores"))
    with pytest.raises(UnsupportedNode, match="labels that are texts"):
        load_onnx(case.model())
