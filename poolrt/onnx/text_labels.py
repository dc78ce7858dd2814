"""Labels that are texts, of the domain ``ai.onnx.ml``: nodes give their numbers.

A Gather behind them looks up the texts: a node of strings (`string_nodes`), between plans. If only nodes that change shapes are
between it and an output, which no node reads, the output is numbers too, and sessions look up its texts at the end of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from poolrt.graph.onnx.domains import ML_DOMAIN, ONNX_DOMAINS
from poolrt.graph.onnx.model_file import onnx_package
from poolrt.graph.onnx.read_node import names_read

from .strings import STRING, string_tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Classifier -> the attribute of its labels if they are whole numbers.
_NUMBERED: Final = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}
#: Operators that change the shape of texts only.
_MOVES: Final = ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
#: What a LabelEncoder without a default gives for a key that it does not have.
_UNUSED: Final = b"_Unused"


def number_labels(graph: Any) -> dict[str, NDArray[Any]]:
    """Change the nodes of a GraphProto whose results are labels of texts, and add nodes and initialisers for the texts.

    Return the texts for the numbers of outputs that are whole numbers now, by name. Raises ModelError for texts that are none.
    """
    if not any(node.domain == ML_DOMAIN for node in graph.node):
        return {}
    stored = {each.name: each for each in graph.initializer if each.data_type == STRING}
    names = {name for node in graph.node for name in (*node.input, *node.output)}
    names |= {each.name for each in (*graph.initializer, *graph.input, *graph.output)}
    nodes: list[Any] = []
    labels: set[str] = set()
    for node in graph.node:
        nodes.append(node)
        if node.domain != ML_DOMAIN or not node.output or not node.output[0]:
            continue
        if node.op_type == "ArrayFeatureExtractor":
            if len(node.input) == 2 and node.input[0] in stored:
                nodes[-1:] = _extracted(graph, node, stored[node.input[0]], names)
                labels.add(node.output[0])
            continue
        texts = _numbered(node)
        if texts:
            label, number = node.output[0], _new(names, f"{node.output[0]}/number")
            node.output[0] = number
            labels.add(label)
            table = _store(graph, names, f"{label}/texts", texts, (len(texts),))
            nodes.append(onnx_package().helper.make_node("Gather", [table, number], [label], f"{label}/text"))
    changed = [_copy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(changed)
    return _look_up_at_the_end(graph, names, labels)


def _look_up_at_the_end(graph: Any, names: set[str], labels: set[str]) -> dict[str, NDArray[Any]]:
    """Make outputs numbers of texts, whose texts a Gather looks up; return the texts by output.

    ``labels`` are the results of the nodes that `number_labels` has added.
    """
    helper = onnx_package().helper
    declared = {each.name: each for each in graph.output}
    tables = {each.name: each for each in graph.initializer if each.data_type == STRING}
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in names_read([node]):
            readers.setdefault(name, []).append(node)
    found: dict[str, NDArray[Any]] = {}
    for node in graph.node:
        if node.op_type != "Gather" or node.output[0] not in labels:
            continue
        table, number, label = tables[node.input[0]], node.input[1], node.output[0]
        chain = _nodes_to_an_output(label, readers, declared)
        if chain is None or list(table.dims)[:-1] not in ([], [1]):
            continue
        if len(table.dims) == 1:
            node.CopyFrom(helper.make_node("Identity", [number], [label], node.name))
        else:
            row = _new(names, f"{label}/row")
            graph.initializer.append(helper.make_tensor(row, onnx_package().TensorProto.INT64, [2], [1, -1]))
            node.CopyFrom(helper.make_node("Reshape", [number, row], [label], node.name))
        for each in chain:
            if each.op_type == "Cast":
                each.CopyFrom(helper.make_node("Identity", list(each.input), list(each.output), each.name))
        output = chain[-1].output[0] if chain else label
        found[output] = string_tensor(table).reshape(-1)
        declared[output].type.tensor_type.elem_type = onnx_package().TensorProto.INT64
    read = names_read(graph.node) | {*declared}
    for place in reversed(range(len(graph.initializer))):
        if graph.initializer[place].data_type == STRING and graph.initializer[place].name not in read:
            del graph.initializer[place]
    return found


def _nodes_to_an_output(label: str, readers: Mapping[str, list[Any]], declared: Mapping[str, Any]) -> list[Any] | None:
    """Return the nodes from a label to an output that no node reads, none of which changes texts; None if there are others."""
    chain: list[Any] = []
    while label not in declared:
        after = readers.get(label, [])
        if len(after) != 1 or not _moves(after[0], label):
            return None
        chain.append(after[0])
        label = after[0].output[0]
    return None if label in readers else chain


def _moves(node: Any, name: str) -> bool:
    """Return whether a node gives the elements of a tensor of texts in another shape, and nothing else."""
    if (
        node.domain not in ONNX_DOMAINS
        or len(node.output) != 1
        or list(node.input).count(name) != 1
        or node.input[0] != name
    ):
        return False
    if node.op_type == "Cast":
        return any(each.name == "to" and each.i == STRING for each in node.attribute)
    return node.op_type in _MOVES


def _numbered(node: Any) -> list[bytes]:
    """Make a node give numbers of texts; return these in order, none if it gives no texts."""
    given = {each.name: each for each in node.attribute}
    if node.op_type in _NUMBERED:
        texts = list(given["classlabels_strings"].strings) if "classlabels_strings" in given else []
        if texts:
            _replace(node, ("classlabels_strings",), _NUMBERED[node.op_type], range(len(texts)))
        return texts
    if node.op_type != "LabelEncoder" or "values_strings" not in given:
        return []
    texts = list(given["values_strings"].strings)
    usual = given["default_string"].s if "default_string" in given else _UNUSED
    _replace(node, ("values_strings", "default_string", "default_int64"), "values_int64s", range(len(texts)))
    node.attribute.append(onnx_package().helper.make_attribute("default_int64", len(texts)))
    return [*texts, usual]


def _replace(node: Any, names: Sequence[str], name: str, numbers: Sequence[int]) -> None:
    """Remove attributes, and add one of whole numbers."""
    kept = [each for each in node.attribute if each.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.append(onnx_package().helper.make_attribute(name, list(numbers)))


def _extracted(graph: Any, node: Any, texts: Any, names: set[str]) -> list[Any]:
    """Return nodes that choose among stored texts: those of a row, as a table of one row."""
    helper, label = onnx_package().helper, node.output[0]
    rows = tuple(texts.dims) if len(texts.dims) > 1 else (1, *texts.dims)
    table = _store(graph, names, f"{label}/texts", texts.string_data, rows)
    every, places = _new(names, f"{label}/every"), _new(names, f"{label}/places")
    graph.initializer.append(helper.make_tensor(every, onnx_package().TensorProto.INT64, [1], [-1]))
    return [
        helper.make_node("Reshape", [node.input[1], every], [places], f"{label}/flat"),
        helper.make_node("Gather", [table, places], [label], f"{label}/text", axis=len(rows) - 1),
    ]


def _store(graph: Any, names: set[str], name: str, texts: Sequence[bytes], dims: Sequence[int]) -> str:
    """Add an initialiser of texts; return its name."""
    name = _new(names, name)
    graph.initializer.append(_tensor(name, texts, dims))
    return name


def _tensor(name: str, texts: Sequence[bytes], dims: Sequence[int]) -> Any:
    return onnx_package().TensorProto(name=name, data_type=STRING, dims=dims, string_data=texts)


def _new(names: set[str], name: str) -> str:
    while name in names:
        name += "'"
    names.add(name)
    return name


def _copy(node: Any) -> Any:
    # Nodes of a graph are gone when its list is emptied.
    found = type(node)()
    found.CopyFrom(node)
    return found
