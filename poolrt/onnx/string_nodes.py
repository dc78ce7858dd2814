"""Nodes of strings, which no plan computes: a run computes them one after the other, between plans.

Few operators look into strings (`string_operators`). The others move them, or compare them: they are plans of numbers, in which
each string is replaced by its place in the order of all strings of the node, and the empty string by 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from poolrt.graph.errors import UnsupportedNode
from poolrt.graph.onnx.domains import ONNX_DOMAINS
from poolrt.graph.onnx.signatures import find_schema
from poolrt.graph.onnx.unsupported import Unsupported

from .courses import COURSES, Compute, Course
from .errors import InvalidGraph, not_implemented
from .parts import Body, Part
from .string_operators import OPERATORS, attributes, is_learned, label, make_operator
from .strings import MOVES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays: TypeAlias = Mapping[str, NDArray[Any]]
    Start: TypeAlias = Callable[[Body, Sequence[str]], Compute]

#: Operators that read strings, as they read numbers, and give none.
_READ: Final = ("Equal", "NonZero", "Shape", "Size", "TfIdfVectorizer")
_MOVED_OR_READ: Final = frozenset((*MOVES, *_READ, "Concat"))


def check_string_nodes(body: Body, opset: int) -> None:
    """Raise NotImplemented that names all nodes of strings of a body which sessions do not have."""
    unsupported = Unsupported()
    for number in sorted(body.of_strings):
        node = body.nodes[number]
        reason = _refusal(node, body)
        if reason:
            name = node.name or next(iter(node.output), "")
            unsupported.add(UnsupportedNode(name, node.op_type, opset, reason), node.output)
    try:
        unsupported.raise_if_found()
    except UnsupportedNode as error:
        raise not_implemented(error) from error


class StringNodes:
    """Computes a part whose nodes are all nodes of strings."""

    def __init__(self, part: Part, opset: int, start: Start) -> None:
        """``start`` makes what computes outputs of a body. Raises InvalidGraph and NotImplemented."""
        self._part = part
        check_string_nodes(part.body, opset)
        read = [name for number in part.members for name in part.body.reads[number]]
        self._constants = _Constants(part, [*read, *part.outputs], start)
        self._steps = [_step(part, part.body.nodes[number], opset, start) for number in sorted(part.members)]

    def run(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return the outputs of the part by name."""
        known = self._constants.with_others(arrays)
        for step in self._steps:
            known.update(step(known))
        missing = [name for name in self._part.outputs if name not in known]
        if missing:
            raise InvalidGraph(
                f"no node computes {missing[0]!r}: the node that has it as a result has none in this place"
            )
        return {name: known[name] for name in self._part.outputs}


class _Constants:
    """What nodes read of the constants of a body, and of what is computed from them alone."""

    def __init__(self, part: Part, names: Sequence[str], start: Start) -> None:
        body = part.body
        self._stored = {name: body.constants[name] for name in names if name in body.constants}
        fixed = [name for name in dict.fromkeys(names) if body.maker.get(name) in body.fixed]
        self._compute = start(body, fixed) if fixed else None

    def with_others(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        return {**self._stored, **arrays, **(self._compute({}) if self._compute is not None else {})}


def _step(part: Part, node: Any, opset: int, start: Start) -> Callable[[Arrays], Arrays]:
    for name in node.input:
        if name and not part.body.knows(name):
            raise InvalidGraph(f"{label(node)}: it reads {name!r}, which no node computes")
    if node.op_type in COURSES:
        return Course(part, node, start).run
    if not is_learned(node):
        _check_operands(node, part.body, opset)
    if not is_learned(node) and node.op_type not in OPERATORS:
        return _Coded(part, node, opset, start).run
    compute = make_operator(node, opset)

    def step(known: Arrays) -> Arrays:
        operands = [_operand(known, name, node, name in part.body.strings) for name in node.input if name]
        return dict(zip(node.output, compute(operands), strict=False))

    return step


def _operand(known: Arrays, name: str, node: Any, is_strings: bool) -> NDArray[Any]:
    """Return an operand of a node. Raises InvalidGraph if no node computed it, or not of the kind that the model says."""
    if name not in known:
        raise InvalidGraph(f"{label(node)}: no node computes {name!r}, which it reads")
    array = known[name]
    if (array.dtype == object) != is_strings:
        what = "strings" if is_strings else "numbers"
        raise InvalidGraph(f"{label(node)}: by the types of the model, {name!r} has {what}, and it has not")
    return array


class _Coded:
    """A node that moves or compares strings, as a plan of their numbers."""

    def __init__(self, part: Part, node: Any, opset: int, start: Start) -> None:
        body = part.body
        self._node = node
        self._strings = [name for name in dict.fromkeys(node.input) if name in body.strings]
        self._results = [name for name in node.output if name]
        self._decoded = [name for name in self._results if name in body.strings]
        #: The strings that numbers stand for, if they are those of the model.
        self._table: NDArray[Any] | None = None
        if node.op_type == "TfIdfVectorizer":
            node, self._table = _with_numbers(node)
        self._compute = start(body.of_numbers(node, self._strings), self._results)

    def run(self, known: Arrays) -> dict[str, NDArray[Any]]:
        """Return the results of the node by name."""
        operands = {name: _operand(known, name, self._node, name in self._strings) for name in self._node.input if name}
        given = {name: operands[name] for name in self._strings}
        if self._table is None:
            every = [np.array([""], object), *(array.reshape(-1) for array in given.values())]
            table = np.unique(np.concatenate(every))
        else:
            table = self._table
        numbers = {text: number for number, text in enumerate(table.tolist())}
        coded = {name: _coded(array, numbers) for name, array in given.items()}
        found = self._compute({**known, **coded})
        return {name: _decoded(found[name], table) if name in self._decoded else found[name] for name in self._results}


def _coded(array: NDArray[Any], numbers: Mapping[str, int]) -> NDArray[Any]:
    """Return the numbers of strings; one that has none gets the number after them."""
    other = len(numbers)
    found = [numbers.get(text, other) for text in array.reshape(-1).tolist()]
    return np.array(found, np.int64).reshape(array.shape)


def _decoded(array: NDArray[Any], table: NDArray[Any]) -> NDArray[Any]:
    found = np.empty(array.shape, object)
    found[...] = table[array]
    return found


def _with_numbers(node: Any) -> tuple[Any, NDArray[Any]]:
    """Return a TfIdfVectorizer of numbers for one of strings, and these strings in order."""
    pool = attributes(node).get("pool_strings")
    if not pool:
        raise InvalidGraph(f"{label(node)}: attribute pool_strings is missing; its input is strings")
    table, places = np.unique(np.array(pool, object), return_inverse=True)
    changed = type(node.proto)()
    changed.CopyFrom(node.proto)
    del changed.attribute[:]
    changed.attribute.extend(each for each in node.attribute if each.name not in ("pool_strings", "pool_int64s"))
    added = changed.attribute.add(name="pool_int64s", type=7)
    added.ints.extend(places.tolist())
    return changed, table


def _check_operands(node: Any, body: Body, opset: int) -> None:
    """Raise InvalidGraph if ONNX does not define a node for strings in these places, and numbers in others."""
    schema = find_schema(node.op_type, "", opset)
    if schema is None:
        raise InvalidGraph(f"{label(node)}: opset {opset} has no such operator")
    needed = [*node.input][: schema.min_input]
    if len(needed) < schema.min_input or "" in needed or len(node.input) > schema.max_input:
        raise InvalidGraph(f"{label(node)}: it has {len(node.input)} inputs, or a needed one is missing")
    if any(each.HasField("g") for each in node.attribute):
        raise InvalidGraph(f"{label(node)}: it has a branch")
    kinds: dict[str, bool] = {}
    for place, name in enumerate(node.input):
        if not name:
            continue
        formal, is_strings = schema.inputs[min(place, len(schema.inputs) - 1)], name in body.strings
        allowed = "tensor(string)" in formal.types if is_strings else formal.types != {"tensor(string)"}
        if not allowed or (formal.is_homogeneous and kinds.setdefault(formal.type_str, is_strings) != is_strings):
            what = "strings" if is_strings else "numbers"
            raise InvalidGraph(f"{label(node)}: in opset {opset}, its input {place} ({name}) cannot be {what} here")


def _refusal(node: Any, body: Body) -> str:
    """Return why sessions do not have a node of strings, empty if they do."""
    kind = node.op_type
    if is_learned(node):
        return ""
    if node.domain not in ONNX_DOMAINS or kind not in (*OPERATORS, *_MOVED_OR_READ, *COURSES):
        return "strings are not supported"
    if not body.sequences.isdisjoint((*node.input, *node.output)):
        return "sequences of strings are not supported"
    if kind.startswith("Scatter") and attributes(node).get("reduction", "none") != "none":
        return "a reduction of strings is not supported"
    return ""
