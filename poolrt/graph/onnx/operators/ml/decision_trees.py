"""The nodes of decision trees as tables: of all trees together, and by levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass

from ...call import NodeCall
from ...folding import Array
from ...model_file import tensor

#: Levels of a tree, each of which is a few steps of a run.
_MOST_LEVELS: Final = 128
_MODES: Final = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "LEAF")
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _LEAF = range(7)


@dataclass(frozen=True, slots=True)
class DecisionTrees:
    """Nodes, a number each: a row goes on to ``true`` if ``low <= column[feature] <= high``, else to ``false``.

    Both are the node itself for a leaf. A tree has a root, and as many levels of decisions as ``depths`` says. ``low`` is None
    if no node has a lower limit; rows with NaN in the column go on to ``true`` for nodes with ``nan``, which is None if there
    are none.
    """

    feature: Array
    low: Array | None
    high: Array
    true: Array
    false: Array
    nan: Array | None
    roots: Array
    depths: Array

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return int(self.feature.size)


def read_trees(call: NodeCall, dtype: np.dtype[Any], columns: int) -> DecisionTrees:
    """Return the trees of a node's attributes; limits are of ``dtype``, that of the ``columns`` they are compared with.

    Raises ModelError for nodes that are missing, form a ring, or name other columns.
    """
    keys = node_keys(call, "nodes_treeids", "nodes_nodeids")
    count = keys.size
    trees: Array = np.asarray(call.integers("nodes_treeids", most=None), np.int64)
    values = numbers_of(call, "nodes_values").astype(dtype)
    names = call.texts("nodes_modes", ())
    unknown = set(names) - set(_MODES)
    if unknown:
        raise call.unsupported(f"mode {min(unknown)} of a node; these are: {', '.join(_MODES)}")
    modes: Array = np.asarray([_MODES.index(each) for each in names], np.int64)
    feature = _of_nodes(call, "nodes_featureids", count)
    missing = _of_nodes(call, "nodes_missing_value_tracks_true", count) != 0
    if not count == modes.size == values.size:
        raise call.malformed(f"{count} nodes with {modes.size} modes and {values.size} values")
    is_leaf = modes == _LEAF
    feature = np.where(is_leaf, 0, feature)
    if count == 0 or feature.min() < 0 or feature.max() >= columns:
        raise call.malformed(f"nodes_featureids: expect columns 0 to {columns - 1}")
    own: Array = np.arange(count, dtype=np.int64)
    ways = [_of_nodes(call, name, count) for name in ("nodes_truenodeids", "nodes_falsenodeids")]
    true, false = (np.where(is_leaf, own, find_nodes(call, keys, trees, each, ~is_leaf)) for each in ways)
    low, high, is_turned = _limits(modes, values)
    # NaN differs from every number, whatever the node says of missing ones.
    nan = (missing ^ is_turned) & (modes != _NEQ)
    true, false = np.where(is_turned, false, true), np.where(is_turned, true, false)
    roots = np.flatnonzero(np.append(True, trees[1:] != trees[:-1]))
    if np.unique(trees[roots]).size != roots.size:
        raise call.malformed("nodes of one tree are apart")
    depths = _depths(call, roots, true, false, is_leaf)
    return DecisionTrees(
        feature.astype(np.int32), None if np.isneginf(low).all() else low, high, true.astype(np.int32),
        false.astype(np.int32), nan if nan[~is_leaf].any() else None, roots.astype(np.int32), depths,
    )  # fmt: skip


def node_keys(call: NodeCall, trees: str, nodes: str) -> Array:
    """Return a number for each pair of a tree and a node in two attributes."""
    first, second = (np.asarray(call.integers(name, most=None), np.int64) for name in (trees, nodes))
    if first.size != second.size or min(first.min(initial=0), second.min(initial=0)) < 0:
        raise call.malformed(f"{trees}, {nodes}: expect as many numbers from 0 on")
    return _key(first, second)


def find_nodes(call: NodeCall, keys: Array, trees: Array, nodes: Array, wanted: Array) -> Array:
    """Return the places of nodes among ``keys``, 0 for those that are not wanted. Raises ModelError for missing ones."""
    order = np.argsort(keys, kind="stable")
    given = _key(trees, nodes)
    at = np.minimum(np.searchsorted(keys, given, sorter=order), keys.size - 1)
    found = order[at]
    is_lost = wanted & (keys[found] != given)
    if is_lost.any():
        lost = int(np.flatnonzero(is_lost)[0])
        raise call.malformed(f"tree {trees[lost]} has no node {nodes[lost]}")
    return np.where(wanted, found, 0)


def numbers_of(call: NodeCall, name: str) -> Array:
    """Return numbers from the attribute of a name, or from the tensor in ``NAME_as_tensor``; none if there is neither."""
    if f"{name}_as_tensor" in call.attrs:
        return tensor(call.proto(f"{name}_as_tensor"), None).reshape(-1)
    return np.asarray(call.numbers(name) if name in call.attrs else (), np.float32)


def _key(trees: Array, nodes: Array) -> Array:
    # Numbers of trees and nodes are below 2^31 in every converter; others meet in one key and are not found.
    return (trees << 32) + nodes


def _of_nodes(call: NodeCall, name: str, count: int) -> Array:
    """Return a number for each node, zeros if the attribute is missing."""
    given: Sequence[int] = call.integers(name, (), most=None) or (0,) * count
    if len(given) != count:
        raise call.malformed(f"{name}: expect {count} numbers, got {len(given)}")
    return np.asarray(given, np.int64)


def _limits(modes: Array, values: Array) -> tuple[Array, Array, Array]:
    """Return the limits of each node between which its column is, and whether it is outside of them instead."""
    infinity = np.asarray(np.inf, values.dtype)
    is_turned = (modes == _GT) | (modes == _GTE) | (modes == _NEQ)
    # x < v is x <= the number before v, x >= v is not x < v. Nothing is below minus infinity, nor equal to NaN.
    before = np.where(np.isneginf(values), np.asarray(np.nan, values.dtype), np.nextafter(values, -infinity))
    high = np.where((modes == _LT) | (modes == _GTE), before, values)
    low = np.where((modes == _EQ) | (modes == _NEQ), values, -infinity)
    high = np.where(modes == _LEAF, infinity, high)
    return low.astype(values.dtype), high.astype(values.dtype), is_turned


def _depths(call: NodeCall, roots: Array, true: Array, false: Array, is_leaf: Array) -> Array:
    """Return the number of levels with a decision of each tree."""
    found: Array = np.zeros(roots.size, np.int64)
    level, owner, depth = roots, np.arange(roots.size), 0
    while True:
        inner = ~is_leaf[level]
        level, owner = level[inner], owner[inner]
        if not level.size:
            return found
        depth += 1
        if depth > _MOST_LEVELS:
            raise call.unsupported(f"trees of more than {_MOST_LEVELS} levels")
        found[owner] = depth
        # A node may follow several others.
        level, at = np.unique(np.concatenate((true[level], false[level])), return_index=True)
        owner = np.concatenate((owner, owner))[at]
