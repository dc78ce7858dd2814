"""Tensors of strings: arrays of objects, each a `str`. Which names of a model have them, and arrays that are given or stored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from poolrt.graph.errors import ModelError
from poolrt.graph.onnx.domains import ONNX_DOMAINS
from poolrt.graph.onnx.element_types import array_type, number_of
from poolrt.spelling import describe_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The TensorProto.DataType of strings.
STRING: Final = 8
#: Operators that are defined for strings only.
OF_STRINGS: Final = ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit")
#: Operators that move elements -> their operands of the results' type.
MOVES: Final[Mapping[str, Sequence[int]]] = {
    **dict.fromkeys(
        (
            "CenterCropPad", "Compress", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
            "Pad", "Reshape", "ReverseSequence", "Scatter", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split",
            "Squeeze", "Tile", "Transpose", "Trilu", "Unique", "Unsqueeze",
        ),
        (0,),
    ),
    "OneHot": (2,),
    "Where": (1, 2),
}  # fmt: skip


def dtype_of_number(number: int) -> np.dtype[Any] | None:
    """Return the type of a session's arrays for a TensorProto.DataType; None for one that arrays do not have."""
    return np.dtype(object) if number == STRING else array_type(number)


def number_of_array(array: NDArray[Any]) -> int:
    """Return the TensorProto.DataType of a session's array. Raises ValueError for a type that ONNX does not have."""
    return _number_of_type(array.dtype)


@lru_cache(maxsize=256)
def _number_of_type(dtype: np.dtype[Any]) -> int:
    # The name of a type takes NumPy 4 us.
    return STRING if dtype.kind == "O" else number_of(dtype.name)


def as_strings(value: Any) -> NDArray[Any]:
    """Return a text, a nested list of texts or an array as an array of strings.

    Bytes are UTF-8, and other objects become texts by `str`, as in ONNX Runtime. Raises ValueError for what is no text.
    """
    given = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else np.asarray(value, object)
    if given.dtype.kind not in "OUS":
        raise ValueError(f"expect strings, got an array of dtype {given.dtype}")
    found = np.empty(given.shape, object)
    flat = found.reshape(-1)
    for place, each in enumerate(given.reshape(-1).tolist()):
        flat[place] = _text(each)
    return found


def string_tensor(proto: Any) -> NDArray[Any]:
    """Return a TensorProto of strings as an array. Raises ModelError naming the tensor."""
    dims, texts = tuple(proto.dims), proto.string_data
    if min(dims, default=0) < 0 or math.prod(dims) != len(texts) or len(dims) > 64:
        raise ModelError(f"tensor {proto.name!r}: its shape {dims} does not fit its {len(texts)} strings")
    try:
        return _array([each.decode("utf-8") for each in texts], dims)
    except UnicodeDecodeError as error:
        raise ModelError(f"tensor {proto.name!r}: a string is not UTF-8: {error}") from error


def stored_strings(node: Any) -> NDArray[Any] | None:
    """Return the strings of a Constant, None for another node. Raises ModelError."""
    if node.op_type != "Constant" or node.domain not in ONNX_DOMAINS:
        return None
    for each in node.attribute:
        if each.name == "value" and each.t.data_type == STRING:
            return string_tensor(each.t)
        if each.name in ("value_string", "value_strings"):
            texts = [each.s] if each.name == "value_string" else list(each.strings)
            try:
                decoded = [text.decode("utf-8") for text in texts]
            except UnicodeDecodeError as error:
                raise ModelError(f"node {node.output[0]!r} (Constant): a string is not UTF-8: {error}") from error
            return _array(decoded, () if each.name == "value_string" else (len(texts),))
    return None


def has_strings(proto: Any) -> bool:
    """Return whether a ModelProto computes with strings anywhere."""
    graph = proto.graph
    if any(each.type.tensor_type.elem_type == STRING for each in graph.input):
        return True
    if any(each.data_type == STRING for each in graph.initializer):
        return True
    nodes = [*graph.node, *(node for function in proto.functions for node in function.node)]
    return any(_makes_strings(node) for node in _with_branches(nodes))


def find_strings(nodes: Iterable[Any], known: Iterable[str]) -> tuple[set[str], set[int]]:
    """Return the names of strings among nodes in order, those ``known`` included, and the numbers of the nodes of strings.

    These read or compute strings, or have a branch with such a node.
    """
    found, numbers = set(known), set[int]()
    for number, node in enumerate(nodes):
        inner = _in_branches(node, found) if node.attribute else False
        made = _results(node, found)
        found.update(made)
        if inner or made or not found.isdisjoint(node.input):
            numbers.add(number)
    return found, numbers


def _results(node: Any, found: set[str]) -> list[str]:
    """Return the results of a node that are strings."""
    if node.domain not in ONNX_DOMAINS:
        return []
    kind, inputs = node.op_type, node.input
    if kind == "If":
        graphs = _branches(node)
        inside = [_names_in(graph, found) for graph in graphs]
        pairs = [zip(node.output, graph.output, strict=False) for graph in graphs]
        return [name for each, names in zip(pairs, inside, strict=True) for name, port in each if port.name in names]
    if kind in ("Loop", "Scan"):
        results = []
        for graph in _branches(node):
            outputs = graph.output[1:] if kind == "Loop" else graph.output
            names = _names_in(graph, {*found, *_ports(node, graph, found)})
            results += [name for name, port in zip(node.output, outputs, strict=False) if port.name in names]
        return results
    if kind == "Concat":
        is_made = any(name in found for name in inputs)
    elif kind == "CastLike":
        is_made = len(inputs) > 1 and inputs[1] in found
    elif kind in MOVES:
        is_made = any(place < len(inputs) and inputs[place] in found for place in MOVES[kind])
    else:
        is_made = _makes_strings(node) and kind != "RegexFullMatch"
    if not is_made:
        return []
    return [name for name in (node.output if kind == "Split" else node.output[:1]) if name]


def _makes_strings(node: Any) -> bool:
    """Return whether a node reads or computes strings by its operator and attributes alone, whatever its operands are."""
    if node.domain not in ONNX_DOMAINS:
        return False
    if node.op_type == "Cast":
        return any(each.name == "to" and each.i == STRING for each in node.attribute)
    if node.op_type == "Constant":
        return any(
            each.name in ("value_string", "value_strings") or (each.name == "value" and each.t.data_type == STRING)
            for each in node.attribute
        )
    return node.op_type in OF_STRINGS


def _in_branches(node: Any, found: set[str]) -> bool:
    """Return whether a branch of a node has nodes of strings."""
    for graph in _branches(node):
        names = {*found, *_ports(node, graph, found), *_stored(graph)}
        if find_strings(graph.node, names)[1] or any(each.name in names for each in graph.output):
            return True
    return False


def _names_in(graph: Any, known: Iterable[str]) -> set[str]:
    return find_strings(graph.node, {*known, *_stored(graph)})[0]


def _ports(node: Any, graph: Any, found: set[str]) -> set[str]:
    """Return the inputs of a branch that are strings: operands that are, or declared as such."""
    first = 2 if node.op_type == "Loop" else 0
    pairs = zip(graph.input[first:], node.input[first:], strict=False)
    declared = {each.name for each in graph.input if each.type.tensor_type.elem_type == STRING}
    return declared | {port.name for port, name in pairs if name in found}


def _stored(graph: Any) -> set[str]:
    return {each.name for each in graph.initializer if each.data_type == STRING}


def _branches(node: Any) -> list[Any]:
    return [each.g for each in node.attribute if each.HasField("g")]


def _with_branches(nodes: Iterable[Any]) -> Iterator[Any]:
    left = list(nodes)
    while left:
        node = left.pop()
        yield node
        for graph in _branches(node):
            left += graph.node


def _array(texts: Sequence[str], dims: Sequence[int]) -> NDArray[Any]:
    found = np.empty(len(texts), object)
    found[:] = texts
    return found.reshape(dims)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple | dict | np.ndarray):
        raise ValueError(f"expect strings in a regular shape, got {describe_type(value)} as an element")
    text = value if type(value) is str else value.decode("utf-8") if isinstance(value, bytes) else str(value)
    if not text.isascii():
        text.encode("utf-8")  # half a surrogate pair is no text
    return text
