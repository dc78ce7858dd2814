"""Nodes of the domain ``ai.onnx.ml`` on random inputs: columns of tables, linear models, trees and support vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]
_COLUMNS = 6


@dataclass(frozen=True)
class Case:
    """A node, its inputs, and its attributes."""

    operator: str
    inputs: Mapping[str, Array]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)
    tolerance: float = 2e-5
    version: int = 4

    def model(self) -> onnx.ModelProto:
        node = helper.make_node(
            self.operator, list(self.inputs), list(self.outputs), "node", domain="ai.onnx.ml", **self.attributes
        )
        declared = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
            for name, each in self.inputs.items()
        ]
        results = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", self.version)]
        graph = helper.make_graph([node], "single", declared, results)
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def table(rng: np.random.Generator, rows: int = 9, dtype: str = "float32", columns: int = _COLUMNS) -> Array:
    """Return random numbers; those of a type of whole numbers are small."""
    return (rng.standard_normal((rows, columns)) * (1 if dtype.startswith("float") else 3)).astype(dtype)


def feature_cases(seed: int) -> list[Case]:
    """Return cases of operators that prepare columns."""
    rng = np.random.default_rng(seed)
    x, found = table(rng), list[Case]()
    places = np.asarray([[4, 0, 4]], np.int64)
    for dtype in ("float32", "int64", "float64", "int32"):
        typed = table(rng, dtype=dtype)
        found += [
            Case("ArrayFeatureExtractor", {"x": typed, "places": places}),
            Case("Scaler", {"x": typed}, {"offset": rng.random(_COLUMNS).tolist(), "scale": rng.random(_COLUMNS).tolist()}),
            *(Case("Normalizer", {"x": typed * (rng.random((9, 1)) > 0.3).astype(dtype)}, {"norm": norm})
              for norm in ("L1", "L2")),
        ]  # fmt: skip
    found.append(Case("Normalizer", {"x": np.abs(x)}, {"norm": "MAX"}))
    found.append(Case("Scaler", {"x": x}, {"offset": [0.25], "scale": [1.5]}))
    found.append(Case("Binarizer", {"x": x}, {"threshold": 0.5}))
    lacking = np.where(rng.random(x.shape) < 0.3, np.nan, x).astype(np.float32)
    fills = rng.random(_COLUMNS).tolist()
    found += [
        Case("Imputer", {"x": lacking}, {"imputed_value_floats": fills, "replaced_value_float": float("nan")}),
        Case("Imputer", {"x": np.round(x)}, {"imputed_value_floats": [7.5], "replaced_value_float": 1.0}),
        Case("Imputer", {"x": table(rng, dtype="int64")},
             {"imputed_value_int64s": list(range(_COLUMNS)), "replaced_value_int64": 0}),
        Case("FeatureVectorizer", {"a": x, "b": table(rng, columns=2)}, {"inputdimensions": [_COLUMNS, 2]}),
        Case("OneHotEncoder", {"x": table(rng, dtype="int64")[:, :1]}, {"cats_int64s": [-2, 0, 3, 1], "zeros": 1}),
        Case("OneHotEncoder", {"x": table(rng)[:, 0] * 4}, {"cats_int64s": [-2, 0, 3, 1], "zeros": 1}),
        Case("LabelEncoder", {"x": table(rng, dtype="int64")},
             {"keys_int64s": [0, 2, -1], "values_floats": [0.5, 1.5, 9.0], "default_float": -3.0}),
        Case("LabelEncoder", {"x": np.round(lacking)},
             {"keys_floats": [1.0, float("nan"), 0.0], "values_int64s": [5, 6, 7], "default_int64": 8}),
        Case("LabelEncoder", {"x": table(rng, dtype="int64")}, {"keys_int64s": [0, 1], "values_int64s": [3, 4]}),
    ]  # fmt: skip
    return found


def linear_cases(seed: int) -> list[Case]:
    """Return cases of linear models and support vectors."""
    rng = np.random.default_rng(seed)
    x, found = table(rng), list[Case]()
    for targets in (1, 3):
        numbers = rng.standard_normal(targets * (_COLUMNS + 1)).tolist()
        attributes = {"coefficients": numbers[:-targets], "intercepts": numbers[-targets:], "targets": targets}
        found.append(Case("LinearRegressor", {"x": x}, attributes))
    for classes in (2, 4):
        numbers = rng.standard_normal(classes * (_COLUMNS + 1)).tolist()
        labels = [3, -1, 8, 5][:classes]
        for kind in ("NONE", "SOFTMAX", "LOGISTIC"):
            attributes = {"coefficients": numbers[:-classes], "intercepts": numbers[-classes:], "post_transform": kind}
            given = {**attributes, "classlabels_ints": labels}
            found.append(Case("LinearClassifier", {"x": x}, given, ("y", "scores")))
    numbers = rng.standard_normal(_COLUMNS).tolist()
    attributes = {
        "coefficients": numbers,
        "intercepts": [0.2],
        "classlabels_ints": [4, 2],
    }
    for kind in ("LOGISTIC", "NONE", "SOFTMAX", "SOFTMAX_ZERO"):
        found.append(Case("LinearClassifier", {"x": x}, {**attributes, "post_transform": kind}, ("y", "scores")))
    for kind in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        single = {"coefficients": numbers, "targets": 1, "post_transform": kind}
        found.append(Case("LinearRegressor", {"x": x}, single))
    vectors = rng.standard_normal((7, _COLUMNS)).astype(np.float32) + 100
    for kind in ("LINEAR", "RBF", "POLY", "SIGMOID"):
        moved = vectors if kind == "RBF" else vectors - 100
        attributes = {
            "coefficients": rng.standard_normal(7).tolist(), "support_vectors": moved.reshape(-1).tolist(), "rho": [0.3],
            "kernel_type": kind, "kernel_params": [0.3, 0.1, 3.0], "n_supports": 7,
        }  # fmt: skip
        shifted = x + 100 if kind == "RBF" else x
        found += [
            Case("SVMRegressor", {"x": shifted}, attributes, tolerance=1e-4),
            Case("SVMRegressor", {"x": shifted}, {**attributes, "one_class": 1}),
        ]
    for classes, counts in ((2, [3, 4]), (3, [2, 3, 2]), (4, [3, 1, 2, 1])):
        for kind in ("LINEAR", "RBF"):
            pairs = classes * (classes - 1) // 2
            attributes = {
                "coefficients": rng.standard_normal((classes - 1) * 7).tolist(), "vectors_per_class": counts,
                "support_vectors": (vectors - 100).reshape(-1).tolist(), "rho": rng.standard_normal(pairs).tolist(),
                "kernel_type": kind, "kernel_params": [0.3, 0.1, 3.0], "classlabels_ints": [5, 2, -4, 9][:classes],
            }  # fmt: skip
            for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
                transformed = {**attributes, "post_transform": transform}
                found.append(Case("SVMClassifier", {"x": x}, transformed, ("y", "scores")))
    return found


def chance_cases(seed: int) -> list[Case]:
    """Return cases of support vectors with chances of classes, some of which are next to 0 and 1."""
    rng, found = np.random.default_rng(seed), list[Case]()
    for classes, counts in ((2, [3, 4]), (3, [2, 3, 2]), (5, [3, 1, 2, 1, 4])):
        count, pairs = sum(counts), classes * (classes - 1) // 2
        x = table(rng, 33)
        attributes = {
            "coefficients": rng.standard_normal((classes - 1) * count).tolist(), "vectors_per_class": counts,
            "support_vectors": rng.standard_normal(count * _COLUMNS).tolist(), "rho": rng.standard_normal(pairs).tolist(),
            "kernel_type": "LINEAR", "kernel_params": [0.3, 0.1, 3.0], "classlabels_ints": [5, 2, -4, 9, 0][:classes],
            "prob_b": (rng.standard_normal(pairs) / 4).tolist(),
        }  # fmt: skip
        for steep in (0.2, 1.0, 20.0):
            given = {**attributes, "prob_a": (-steep * rng.random(pairs)).tolist()}
            found.append(Case("SVMClassifier", {"x": x}, given, ("y", "scores")))
        for kind in ("LOGISTIC", "SOFTMAX"):
            given = {**attributes, "prob_a": [-1.0] * pairs, "post_transform": kind, "kernel_type": "RBF"}
            found.append(Case("SVMClassifier", {"x": x}, given, ("y", "scores")))
    return found


class Forest:
    """The attributes of random trees; decisions are of ``modes``."""

    def __init__(self, rng: np.random.Generator, trees: int, depth: int, modes: Sequence[str]) -> None:
        self.rng, self.modes = rng, modes
        self.nodes: dict[str, list[Any]] = {
            f"nodes_{name}": []
            for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
                         "missing_value_tracks_true")
        }  # fmt: skip
        self.leaves: list[tuple[int, int]] = []
        for tree in range(trees):
            self.grow(tree, depth, [0])

    def grow(self, tree: int, depth: int, next_node: list[int]) -> int:
        """Add a node and those below it; return its number in the tree."""
        node, rng = next_node[0], self.rng
        next_node[0] += 1
        is_leaf = depth == 0 or (node > 0 and rng.random() < 0.2)
        row = len(self.nodes["nodes_modes"])
        # Limits are numbers that columns have, too.
        limit = round(float(rng.standard_normal()), 1)
        values = (tree, node, int(rng.integers(_COLUMNS)), limit, "LEAF" if is_leaf else str(rng.choice(self.modes)), 0, 0,
                  int(rng.random() < 0.5))  # fmt: skip
        for each, value in zip(self.nodes.values(), values, strict=True):
            each.append(value)
        if is_leaf:
            self.leaves.append((tree, node))
        else:
            self.nodes["nodes_truenodeids"][row] = self.grow(tree, depth - 1, next_node)
            self.nodes["nodes_falsenodeids"][row] = self.grow(tree, depth - 1, next_node)
        return node

    def attributes(self, kind: str, ids: Callable[[int, int], Sequence[int]], positive: bool = False) -> dict[str, Any]:
        """Return the attributes of a node whose leaves have weights for the ``ids`` of a tree and node."""
        pairs = [(tree, node, each) for tree, node in self.leaves for each in ids(tree, node)]
        trees, nodes, targets = (list(each) for each in zip(*pairs, strict=True))
        weights = self.rng.standard_normal(len(pairs)).astype(np.float32)
        return {
            **self.nodes, f"{kind}_treeids": trees, f"{kind}_nodeids": nodes, f"{kind}_ids": targets,
            f"{kind}_weights": (np.abs(weights) / 8 if positive else weights).tolist(),
        }  # fmt: skip


def linked(forest: Forest, targets: int, dtype: str, sets: Sequence[Sequence[float]] = ()) -> dict[str, Any]:
    """Return the attributes of a TreeEnsemble with the trees of a forest, none of which is a leaf alone.

    The first nodes look into ``sets``, each node in another one.
    """
    rng, nodes = forest.rng, forest.nodes
    keys = list(zip(nodes["nodes_treeids"], nodes["nodes_nodeids"], strict=True))
    inner = [row for row, mode in enumerate(nodes["nodes_modes"]) if mode != "LEAF"]
    # Nodes in an order of their own, not that of trees
    rng.shuffle(inner)
    places = {keys[row]: place for place, row in enumerate(inner)}
    leaves = {key: place for place, key in enumerate(forest.leaves)}
    modes = [_ALL_MODES.index(nodes["nodes_modes"][row]) for row in inner]
    modes[: len(sets)] = [len(_ALL_MODES)] * len(sets)
    values = [nodes["nodes_values"][row] for row in inner]
    found: dict[str, Any] = {
        "tree_roots": [places[key] for key in keys if key[1] == 0], "n_targets": targets,
        "nodes_modes": numpy_helper.from_array(np.asarray(modes, np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.asarray(values, dtype)),
        "nodes_featureids": [nodes["nodes_featureids"][row] for row in inner],
        "nodes_missing_value_tracks_true": [nodes["nodes_missing_value_tracks_true"][row] for row in inner],
        "leaf_targetids": rng.integers(0, targets, len(leaves)).tolist(),
        "leaf_weights": numpy_helper.from_array(rng.standard_normal(len(leaves)).astype(dtype)),
    }  # fmt: skip
    for side in ("true", "false"):
        following = [(keys[row][0], nodes[f"nodes_{side}nodeids"][row]) for row in inner]
        found[f"nodes_{side}nodeids"] = [places[key] if key in places else leaves[key] for key in following]
        found[f"nodes_{side}leafs"] = [int(key in leaves) for key in following]
    if sets:
        members = [number for each in sets for number in (*each, np.nan)]
        found["membership_values"] = numpy_helper.from_array(np.asarray(members, dtype))
    return found


_ALL_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def tree_cases(seed: int) -> list[Case]:
    """Return cases of ensembles of trees."""
    rng = np.random.default_rng(seed)
    x, found = np.round(table(rng, 40), 1), list[Case]()
    lacking = np.where(rng.random(x.shape) < 0.2, np.nan, x).astype(np.float32)
    for modes in (*((mode,) for mode in _ALL_MODES), _ALL_MODES):
        forest = Forest(rng, 7, 5, modes)
        for given in (x, lacking):
            found.append(
                Case(
                    "TreeEnsembleRegressor",
                    {"x": given},
                    {**forest.attributes("target", lambda *_: [0]), "n_targets": 1},
                )
            )
    forest = Forest(rng, 6, 4, _ALL_MODES[:1])
    for how in ("SUM", "AVERAGE", "MIN", "MAX"):
        attributes = forest.attributes("target", lambda *_: [0, 2, 1])
        found.append(Case("TreeEnsembleRegressor", {"x": x}, {**attributes, "n_targets": 3, "aggregate_function": how}))
    attributes = {**forest.attributes("target", lambda tree, _: [tree % 2]), "n_targets": 2, "base_values": [0.5, -2.0]}
    found.append(Case("TreeEnsembleRegressor", {"x": x.astype(np.float64)}, attributes))
    stumps = Forest(rng, 3, 0, _ALL_MODES[:1])
    found.append(
        Case("TreeEnsembleRegressor", {"x": x}, {**stumps.attributes("target", lambda *_: [0]), "n_targets": 1})
    )
    labels = {"classlabels_int64s": [7, 2, 9]}
    outputs = ("y", "scores")
    for kind in ("NONE", "SOFTMAX", "LOGISTIC"):
        for ids in (lambda *_: [0, 1, 2], lambda tree, _: [tree % 3], lambda tree, node: [(tree + node) % 3]):
            attributes = {**forest.attributes("class", ids), **labels, "post_transform": kind}
            found.append(Case("TreeEnsembleClassifier", {"x": x}, attributes, outputs))
    for dtype in ("float64", "int64", "int32"):
        typed = {"x": table(rng, 40, dtype)}
        found.append(
            Case(
                "TreeEnsembleClassifier", typed, {**forest.attributes("class", lambda *_: [1, 0, 2]), **labels}, outputs
            )
        )
    labels = {"classlabels_int64s": [4, 1]}
    for kind in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        for positive in (False, True):
            attributes = {**forest.attributes("class", lambda *_: [0], positive), **labels, "post_transform": kind}
            found.append(Case("TreeEnsembleClassifier", {"x": x}, attributes, outputs))
            found.append(Case("TreeEnsembleClassifier", {"x": x}, {**attributes, "base_values": [0.3]}, outputs))
        attributes = {**forest.attributes("target", lambda *_: [0]), "n_targets": 1, "post_transform": kind}
        found.append(Case("TreeEnsembleRegressor", {"x": x}, attributes))
    for how in ("SUM", "AVERAGE", "MIN", "MAX"):
        # Rows may reach no leaf with a weight of a target.
        attributes = forest.attributes("target", lambda _, node: [node % 2])
        attributes |= {"n_targets": 3, "aggregate_function": how}
        found.append(Case("TreeEnsembleRegressor", {"x": x}, attributes))
    return found


def linked_cases(seed: int) -> list[Case]:
    """Return cases of trees whose leaves are a table of their own."""
    rng, found = np.random.default_rng(seed), list[Case]()
    for dtype in ("float32", "float64"):
        x = np.round(table(rng, 40, dtype) * 2)
        lacking = np.where(rng.random(x.shape) < 0.2, np.nan, x).astype(dtype)
        for given in (x, lacking):
            for sets in ((), [(1.0, 3.0, 2.0, 7.0), (1.0,), (2.0, 3.0)]):
                forest = Forest(rng, 6, 4, _ALL_MODES)
                attributes = linked(forest, 3, dtype, sets)
                found.append(Case("TreeEnsemble", {"x": given}, attributes, version=5))
        for how in (0, 2, 3):
            attributes = {**linked(Forest(rng, 4, 3, _ALL_MODES[:1]), 1, dtype), "aggregate_function": how}
            found.append(Case("TreeEnsemble", {"x": x}, attributes, version=5))
    one = {"tree_roots": [0], "nodes_featureids": [0], "nodes_truenodeids": [0], "nodes_falsenodeids": [0],
           "nodes_trueleafs": [1], "nodes_falseleafs": [1], "leaf_targetids": [0], "n_targets": 1,
           "nodes_modes": numpy_helper.from_array(np.zeros(1, np.uint8)),
           "nodes_splits": numpy_helper.from_array(np.zeros(1, np.float32)),
           "leaf_weights": numpy_helper.from_array(np.full(1, 2.5, np.float32))}  # fmt: skip
    found.append(Case("TreeEnsemble", {"x": table(rng)}, one, version=5))
    return found


CASES: dict[str, Callable[[int], list[Case]]] = {
    "features": feature_cases,
    "linear": linear_cases,
    "chances": chance_cases,
    "trees": tree_cases,
    "linked": linked_cases,
}
