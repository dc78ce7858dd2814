"""The attributes of `TreeEnsemble`, whose leaves are tables of their own, as those of a `TreeEnsembleRegressor`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from poolrt.cachestore.deferred_dataclass import replace

from ...call import NodeCall
from ...folding import Array
from ...model_file import onnx_package, tensor

_MODES: Final = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
_EQUAL, _MEMBER = _MODES.index("BRANCH_EQ"), _MODES.index("BRANCH_MEMBER")
_LEAF: Final = len(_MODES)
_HOW: Final = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def as_regressor(call: NodeCall) -> NodeCall:
    """Return a `TreeEnsembleRegressor` that computes what a `TreeEnsemble` does. Raises ModelError for tables that do not fit."""
    modes: Array = _tensor(call, "nodes_modes").astype(np.int64)
    count = modes.size
    nodes: dict[str, Array] = {
        "modes": modes,
        "featureids": _integers(call, "nodes_featureids", count),
        "values": _tensor(call, "nodes_splits"),
        "missing_value_tracks_true": _integers(call, "nodes_missing_value_tracks_true", count, is_optional=True),
    }
    targets: Array = np.asarray(call.integers("leaf_targetids", most=None), np.int64)
    weights = _tensor(call, "leaf_weights")
    if nodes["values"].size != count or weights.size != targets.size:
        raise call.malformed(
            f"{count} nodes with {nodes['values'].size} splits, {targets.size} leaves with {weights.size} weights"
        )
    if count == 0 or modes.min() < 0 or modes.max() > _MEMBER:
        raise call.malformed(f"nodes_modes: expect numbers 0 to {_MEMBER}")
    for side in ("true", "false"):
        nodes[f"{side}nodeids"] = _following(call, side, count, targets.size)
    nodes = _with_leaves(nodes, targets.size)
    if (modes == _MEMBER).any():
        nodes = _with_comparisons(call, nodes)
    roots: Array = np.asarray(call.integers("tree_roots", most=None), np.int64)
    if not roots.size or roots.min() < 0 or roots.max() >= count or np.unique(roots).size != roots.size:
        raise call.malformed(f"tree_roots: expect different numbers 0 to {count - 1}")
    owner = _owners(call, nodes, roots)
    is_root: Array = np.zeros(owner.size, np.bool_)
    is_root[roots] = True
    # Trees one after the other, the root of each first; nodes that no tree has are left out.
    order = np.lexsort((~is_root, owner))
    order = order[owner[order] >= 0]
    ids = np.arange(owner.size)
    reached = np.flatnonzero(owner[count : count + targets.size] >= 0)
    attributes: dict[str, Any] = {
        "nodes_treeids": owner[order].tolist(),
        "nodes_nodeids": ids[order].tolist(),
        **{f"nodes_{name}": each[order].tolist() for name, each in nodes.items() if name not in ("modes", "values")},
        "nodes_modes": [b"LEAF" if each == _LEAF else _MODES[each].encode() for each in nodes["modes"][order].tolist()],
        "nodes_values_as_tensor": _proto(nodes["values"][order]),
        "target_treeids": owner[count + reached].tolist(),
        "target_nodeids": (count + reached).tolist(),
        "target_ids": targets[reached].tolist(),
        "target_weights_as_tensor": _proto(weights[reached]),
        "n_targets": call.integer("n_targets", 1),
        "aggregate_function": _named(call, "aggregate_function", _HOW, 1),
        "post_transform": _named(call, "post_transform", _TRANSFORMS, 0),
    }
    return replace(call, attrs=attributes)


def _following(call: NodeCall, side: str, count: int, leaves: int) -> Array:
    """Return the nodes that follow nodes on a side; leaves have the numbers behind those of the nodes."""
    places = _integers(call, f"nodes_{side}nodeids", count)
    is_leaf = _integers(call, f"nodes_{side}leafs", count) != 0
    wrong = np.flatnonzero((places < 0) | (places >= np.where(is_leaf, leaves, count)))
    if wrong.size:
        kind = "leaf" if is_leaf[wrong[0]] else "node"
        raise call.malformed(f"nodes_{side}nodeids: there is no {kind} {places[wrong[0]]}")
    return places + np.where(is_leaf, count, 0)


def _with_leaves(nodes: dict[str, Array], leaves: int) -> dict[str, Array]:
    """Return nodes with leaves behind them, which follow themselves."""
    count = nodes["modes"].size
    own = np.arange(count, count + leaves)
    added = {"modes": np.full(leaves, _LEAF), "truenodeids": own, "falsenodeids": own}
    return {
        name: np.concatenate((each, added.get(name, np.zeros(leaves)))).astype(each.dtype)
        for name, each in nodes.items()
    }


def _with_comparisons(call: NodeCall, nodes: dict[str, Array]) -> dict[str, Array]:
    """Return nodes in which those that look into a set are a chain of nodes, one for each of its members."""
    members = _tensor(call, "membership_values").astype(nodes["values"].dtype)
    at = np.flatnonzero(nodes["modes"] == _MEMBER)
    ends = np.flatnonzero(np.isnan(members))
    if ends.size != at.size and not (ends.size == at.size - 1 and members.size):
        raise call.malformed(f"membership_values: {ends.size} sets for {at.size} nodes")
    sets = [each[~np.isnan(each)] for each in np.split(members, ends)][: at.size]
    rows = {name: each.tolist() for name, each in nodes.items()}
    for node, numbers in zip(at.tolist(), sets, strict=True):
        rows["modes"][node] = _EQUAL
        # Nothing is equal to NaN.
        rows["values"][node] = numbers[0] if numbers.size else np.nan
        last = node
        for number in numbers[1:]:
            for each in rows.values():
                each.append(each[last])
            rows["values"][-1] = number
            rows["falsenodeids"][last] = last = len(rows["values"]) - 1
    return {name: np.asarray(each, nodes[name].dtype) for name, each in rows.items()}


def _owners(call: NodeCall, nodes: dict[str, Array], roots: Array) -> Array:
    """Return the tree of each node, -1 for nodes that no tree has."""
    owner: Array = np.full(nodes["modes"].size, -1, np.int64)
    level, tree = roots, np.arange(roots.size)
    while level.size:
        owner[level] = tree
        level = np.concatenate((nodes["truenodeids"][level], nodes["falsenodeids"][level]))
        level, first = np.unique(level, return_index=True)
        tree = np.concatenate((tree, tree))[first]
        is_new = owner[level] < 0
        if (owner[level][~is_new] != tree[~is_new]).any():
            raise call.malformed("two trees have one node")
        level, tree = level[is_new], tree[is_new]
    return owner


def _named(call: NodeCall, name: str, names: tuple[str, ...], usual: int) -> bytes:
    number = call.integer(name, usual)
    if not 0 <= number < len(names):
        raise call.malformed(f"{name}: expect 0 to {len(names) - 1}, got {number}")
    return names[number].encode()


def _tensor(call: NodeCall, name: str) -> Array:
    return tensor(call.proto(name), None).reshape(-1)


def _integers(call: NodeCall, name: str, count: int, is_optional: bool = False) -> Array:
    given = call.integers(name, () if is_optional else None, most=None) or ((0,) * count if is_optional else ())
    if len(given) != count:
        raise call.malformed(f"{name}: expect {count} numbers, got {len(given)}")
    return np.asarray(given, np.int64)


def _proto(array: Array) -> Any:
    return onnx_package().numpy_helper.from_array(np.ascontiguousarray(array))
