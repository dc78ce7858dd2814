"""Ensembles of decision trees: a primitive finds the leaves of all trees that rows reach, and their weights add up."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Final

import numpy as np

from ...call import NodeCall, Operator
from ...folding import Array
from ...tensors import Operand, Tensors, array_dtype, dtype_of, shape_of
from .decision_trees import DecisionTrees, find_nodes, node_keys, numbers_of, read_trees
from .linked_trees import as_regressor
from .scores import best_label, class_labels, label_above, scores_of_two, transform

#: Elements of a table with a weight for each node and sum.
_MOST_WEIGHTS: Final = 1 << 26


def regress(call: NodeCall, dtype: str = "float32") -> Operand:
    """Combine the weights of the leaves that a row reaches, for each target, as ``dtype``."""
    m, targets = call.math, call.integer("n_targets", 1)
    leaves = _Leaves(call, "target", targets)
    how = call.text("aggregate_function", "SUM")
    if how in ("SUM", "AVERAGE"):
        found = leaves.sums()
        if how == "AVERAGE":
            found = m.binary(found, m.number(leaves.trees.roots.size, found), "div")
    elif how in ("MIN", "MAX"):
        found = leaves.extremes(how == "MAX")
    else:
        raise call.malformed(f"aggregate_function: expect SUM, AVERAGE, MIN or MAX, got {how!r}")
    return transform(call, m.cast(_with_base(call, found, targets), dtype))


def regress_linked(call: NodeCall) -> Operand:
    """Combine the weights of the leaves that a row reaches, for each target, in the type of the columns."""
    return regress(as_regressor(call), dtype_of(call.tensor(0)))


def classify(call: NodeCall) -> tuple[Operand, ...]:
    """Return the label of the greatest sum of weights, and the scores."""
    m, labels = call.math, class_labels(call, "classlabels_int64s")
    leaves = _Leaves(call, "class", labels.size)
    classes = np.unique(leaves.ids)
    if labels.size != 2 or classes.size != 1:
        sums = m.cast(_with_base(call, leaves.sums(), labels.size), "float32")
        return best_label(call, leaves.without_unscored(sums), labels), transform(call, sums)
    # One sum for two classes. Weights are chances if all are positive.
    sums = m.cast(_with_base(call, leaves.sums(int(classes[0])), 1), "float32")
    is_chance = bool((leaves.weights >= 0).all())
    label = label_above(call, sums, 0.5 if is_chance else 0.0, labels)
    return label, scores_of_two(call, sums, is_chance, is_row=classes[0] == 1)


def _with_base(call: NodeCall, sums: Operand, count: int) -> Operand:
    """Return sums and the base values."""
    base = numbers_of(call, "base_values")
    if not base.size:
        return sums
    if base.size != count:
        raise call.unsupported(f"{base.size} base values for {count} sums")
    return call.math.binary(sums, base.astype(dtype_of(sums)), "add")


class _Leaves:
    """The leaves of all trees that each row of a table reaches, and their weights."""

    def __init__(self, call: NodeCall, kind: str, count: int) -> None:
        m, source = call.math, call.tensor(0)
        # Columns of float64 are compared with limits of float64.
        dtype = array_dtype("float64" if dtype_of(source) == "float64" else "float32")
        source = m.cast(source, dtype.name)
        self.table = source if len(source.shape) == 2 else m.reshape(source, (1, -1))
        self.call, self.count = call, count
        self.trees = read_trees(call, dtype, shape_of(self.table)[1])
        if self.trees.nodes * max(count, 1) > _MOST_WEIGHTS:
            raise call.unsupported(f"{self.trees.nodes} nodes for {count} sums")
        self.ids: Array = np.asarray(call.integers(f"{kind}_ids", most=None), np.int64)
        self.weights = numbers_of(call, f"{kind}_weights").astype(dtype)
        trees, nodes = f"{kind}_treeids", f"{kind}_nodeids"
        keys = node_keys(call, "nodes_treeids", "nodes_nodeids")
        found = node_keys(call, trees, nodes)
        if not found.size == self.ids.size == self.weights.size:
            raise call.malformed(f"{found.size} leaves with {self.ids.size} numbers and {self.weights.size} weights")
        if self.ids.size == 0 or self.ids.min() < 0 or self.ids.max() >= count:
            raise call.malformed(f"{kind}_ids: expect numbers 0 to {count - 1}")
        self.at = find_nodes(call, keys, found >> 32, found & 0xFFFFFFFF, np.ones(found.size, np.bool_))
        self.reached = _descend(m, self.table, self.trees)

    def sums(self, only: int | None = None) -> Operand:
        """Return the sum of the weights for each row and class, or for one class only."""
        m, trees, rows = self.call.math, self.trees, shape_of(self.table)[0]
        is_single = only is not None or self.count == 1
        class_of = None if is_single else self._class_of_trees()
        if not is_single and class_of is None:
            return m.reduce(m.take(self._table(), self.reached, 0), "sum", (1,), False)
        single: Array = np.zeros(trees.nodes, self.weights.dtype)
        np.add.at(single, self.at, self.weights)
        found = m.take(single, self.reached, 0)
        if class_of is None:
            return m.reduce(found, "sum", (1,), True)
        numbers = np.bincount(class_of)
        # Trees of a class one after the other
        found = m.take(found, np.argsort(class_of, kind="stable"), 1)
        if (numbers == numbers[0]).all():
            return m.reduce(m.reshape(found, (rows, self.count, int(numbers[0]))), "sum", (2,), False)
        ends = np.cumsum(numbers).tolist()
        parts = [m.slice(found, [start], [end], [1], [1]) for start, end in itertools.pairwise([0, *ends])]
        return m.concat([m.reduce(each, "sum", (1,), True) for each in parts], 1)

    def extremes(self, greatest: bool) -> Operand:
        """Return the greatest or least weight for each row and target, 0 if no leaf that is reached has one."""
        m = self.call.math
        none = np.finfo(self.weights.dtype).min if greatest else np.finfo(self.weights.dtype).max
        table: Array = np.full((self.trees.nodes, self.count), none, self.weights.dtype)
        (np.maximum if greatest else np.minimum).at(table, (self.at, self.ids), self.weights)
        found = m.reduce(m.take(table, self.reached, 0), "max" if greatest else "min", (1,), False)
        if self._always_scored().all():
            return found
        nothing = m.expand(m.number(0, found), shape_of(found))
        return m.select(self._is_scored(), found, nothing)

    def without_unscored(self, sums: Operand) -> Operand:
        """Return sums in which a class that no reached leaf has a weight for is below all others."""
        m, call = self.call.math, self.call
        if self._always_scored().all() or numbers_of(call, "base_values").size:
            return sums
        return m.select(self._is_scored(), sums, m.expand(m.number(-np.inf, sums), shape_of(sums)))

    def _scored(self) -> Array:
        """Return which nodes have a weight for which class or target."""
        scored: Array = np.zeros((self.trees.nodes, self.count), np.bool_)
        scored[self.at, self.ids] = True
        return scored

    def _always_scored(self) -> Array:
        """Return for which classes or targets all leaves of a tree have a weight."""
        inner = self.trees.true != np.arange(self.trees.nodes)
        starts = np.append(self.trees.roots, self.trees.nodes)
        return np.asarray(np.logical_and.reduceat(self._scored() | inner[:, None], starts[:-1], 0).any(0))

    def _is_scored(self) -> Operand:
        """Return for each row and class or target whether a leaf that is reached has a weight."""
        m = self.call.math
        has = m.reduce(m.take(self._scored().astype(np.float32), self.reached, 0), "max", (1,), False)
        return m.binary(has, m.number(0, has), "gt")

    def _class_of_trees(self) -> Array | None:
        """Return the class of each tree, None if a tree has leaves of several classes, or a class has no trees."""
        owner = np.searchsorted(self.trees.roots, self.at, side="right") - 1
        found: Array = np.full(self.trees.roots.size, -1, np.int64)
        found[owner] = self.ids
        is_one = np.array_equal(found[owner], self.ids) and np.unique(self.at).size == self.at.size
        is_one = is_one and np.array_equal(np.unique(found), np.arange(self.count))
        return found if is_one else None

    def _table(self) -> Array:
        """Return the weights of each node for each class."""
        table: Array = np.zeros((self.trees.nodes, self.count), self.weights.dtype)
        np.add.at(table, (self.at, self.ids), self.weights)
        return table


def _descend(m: Tensors, table: Operand, trees: DecisionTrees) -> Operand:
    """Return the leaf of each tree that each row reaches: (rows, trees) of int32."""
    nan: Array = np.zeros(trees.nodes, np.int32) if trees.nan is None else trees.nan.astype(np.int32)
    nodes = np.stack([trees.feature, trees.true, trees.false, nan], 1)
    limits = trees.high[:, None] if trees.low is None else np.stack([trees.low, trees.high], 1)
    levels = max(1, int(trees.depths.max()))
    return m.graph.tree_leaves(
        m.value(table), m.value(nodes), m.value(limits), m.value(trees.roots), levels, name=m.name("leaves")
    )


OPERATORS: Final[Mapping[str, Operator]] = {
    "TreeEnsemble": regress_linked,
    "TreeEnsembleClassifier": classify,
    "TreeEnsembleRegressor": regress,
}
