"""The parser of graphs that arrive from clients: the one place that validates a wire form.

Guarantees: `parse` returns a graph that is consistent (attributes have their types, values are defined before they are
read, results have the shapes that inference gives), or raises GraphError. Lowering checks none of this again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from reprlib import repr as shorten
from typing import Any, Final

from poolrt.workers.desc import MemoryDesc
from poolrt.workers.desc.attributes import MAX_POST_OPS
from poolrt.workers.desc.op_desc import FORWARD, one_of
from poolrt.workers.desc.quantisation import KINDS

from .engine_name import require_engine
from .errors import GraphError
from .inference.attributes import attribute_types
from .inference.operands import operand_arguments, result_arguments
from .inference.operations import infer, is_view, op_desc
from .ir import MAX_TENSOR, Attribute, Node, PostOpUse, QuantisationUse, TypedGraph

_INTEGERS: Final = "tuple[int, ...]"
_GRAPH: Final = {
    "name": "str", "engine": "str", "values": "list", "inputs": "list", "outputs": "list", "constants": "list",
    "nodes": "list",
}  # fmt: skip
_VALUE: Final = {"dims": _INTEGERS, "dtype": "str"}
_PORT: Final = {"name": "str", "value": "int"}
_CONSTANT: Final = {"value": "int", "bytes": "int"}
_NODE: Final = {
    "kind": "str", "name": "str", "inputs": _INTEGERS, "outputs": _INTEGERS, "attributes": "dict", "post_ops": "list",
    "quantisation": "list", "engine": "str", "implementation": "str",
}  # fmt: skip
_ELTWISE: Final = {"kind": "str", "algorithm": "str", "alpha": "float", "beta": "float"}
_BINARY: Final = {"kind": "str", "algorithm": "str", "value": "int"}
_QUANTISATION: Final = {"kind": "str", "argument": "int", "mask": "int", "value": "int"}
_TYPES: Final = {"float": frozenset({float, int})} | {
    of.__name__: frozenset({of}) for of in (int, str, bool, list, dict)
}


def parse(wire: object) -> TypedGraph:
    """Return the graph of a wire form, see `wire`. Raises GraphError that says what is malformed, and where."""
    try:
        return _Parser().parse(wire)
    except ValueError as error:
        raise GraphError(f"malformed graph: {error}") from error


class _Parser:
    def __init__(self) -> None:
        self.descs: list[MemoryDesc] = []
        self.defined: set[int] = set()

    def parse(self, wire: object) -> TypedGraph:
        if type(wire) is not dict:
            raise ValueError(f"expect a dict, got {shorten(wire)}")
        name, engine, values, *parts = _record([wire.get(field) for field in _GRAPH], _GRAPH)
        for value in values:
            with _at(f"value {len(self.descs)}"):
                self.descs.append(_desc(value))
        inputs, outputs, constants = (
            [_record(each, of) for each in part] for part, of in zip(parts, (_PORT, _PORT, _CONSTANT), strict=False)
        )
        self.define([value for _, value in inputs])
        for value, nbytes in constants:
            self.define([value])
            if nbytes != self.descs[value].nbytes:
                raise ValueError(f"constant {value} has {self.descs[value].nbytes} bytes, not {nbytes}")
        nodes = tuple(self.node(number, node) for number, node in enumerate(parts[-1]))
        self.require_defined([value for _, value in outputs])
        ports = tuple((name, value) for name, value in inputs), tuple((name, value) for name, value in outputs)
        constant = tuple(value for value, _ in constants)
        return TypedGraph(name, require_engine(engine), dict(enumerate(self.descs)), *ports, constant, nodes)

    def define(self, values: Sequence[int]) -> None:
        for value in values:
            if not 0 <= value < len(self.descs) or value in self.defined:
                raise ValueError(f"value {value} is unknown or defined twice")
            self.defined.add(value)

    def require_defined(self, values: Sequence[int]) -> None:
        for value in values:
            if value not in self.defined:
                raise ValueError(f"value {value} is read but not defined before")

    def node(self, number: int, wire: object) -> Node:
        with _at(f"node {number}"):
            kind, name, inputs, outputs, attrs, post_ops, quantisation, engine, implementation = _record(wire, _NODE)
        with _at(f"node {name!r} ({kind})"):
            node = Node(
                kind,
                name,
                inputs,
                outputs,
                _attributes(kind, attrs),
                tuple(map(_post_op, post_ops)),
                tuple(QuantisationUse(*_record(use, _QUANTISATION)) for use in quantisation),
                engine and require_engine(engine),
                implementation,
            )
            self.require_defined(node.uses())
            self.define(outputs)
            self.check(node)
        return node

    def check(self, node: Node) -> None:
        """Raise ValueError unless operands, attributes, post-ops and quantisation of a node give its results."""
        if not node.outputs:
            raise ValueError("outputs: expect at least one")
        sources, results = ([self.descs[value] for value in each] for each in (node.inputs, node.outputs))
        dst = results[0]
        if is_view(node.kind):
            if node.post_ops or node.quantisation:
                raise ValueError("a view takes neither post-ops nor quantisation")
            expected = list(infer(node.kind, sources, node.attrs))
        else:
            op = op_desc(node.kind, sources, node.attrs, dst.dtype)
            memories, operands = op.memories(), operand_arguments(op)
            if len(sources) != len(operands):
                raise ValueError(f"inputs: expect {len(operands)} operands, got {len(sources)}")
            expected = [memories[arg].with_tag("") for arg in result_arguments(op)]
            if node.quantisation:
                self.check_quantisation(node, memories)
        if results != expected:
            raise ValueError(f"dst: expect {', '.join(map(str, expected))}, got {', '.join(map(str, results))}")
        if len(node.post_ops) > MAX_POST_OPS:
            raise ValueError(f"post_ops: expect at most {MAX_POST_OPS}, got {len(node.post_ops)}")
        for post_op in node.post_ops:
            operand = [] if post_op.value is None else [self.descs[post_op.value]]
            if infer(post_op.kind, [dst, *operand], post_op.attributes()) != (dst,):
                raise ValueError(f"post_ops: {post_op.algorithm} changes the shape or data type of {dst}")

    def check_quantisation(self, node: Node, memories: dict[int, MemoryDesc]) -> None:
        for use in node.quantisation:
            one_of("quantisation", use.kind, tuple(KINDS))
        extra = node.quantisation_attr().memories(memories)
        for use in node.quantisation:
            wanted, given = extra[KINDS[use.kind].argument(use.arg)].dims, self.descs[use.value].dims
            if given != wanted:
                raise ValueError(f"{use.kind}: expect {wanted} for argument {use.arg}, got {given}")


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Name the place in which a ValueError is raised."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _desc(wire: object) -> MemoryDesc:
    dims, dtype = _record(wire, _VALUE)
    if any(size < 1 for size in dims):
        raise ValueError(f"dims: expect sizes of at least 1, got {shorten(dims)}")
    desc = MemoryDesc(dims, dtype)
    if desc.nbytes > MAX_TENSOR:
        raise ValueError(f"it has {desc.nbytes} bytes, more than {MAX_TENSOR}")
    return desc


def _attributes(kind: str, wire: Mapping[object, object]) -> dict[str, Attribute]:
    types = attribute_types(kind)
    for name in wire:
        if name not in types:
            raise ValueError(f"attributes: unknown {shorten(name)}; known: {', '.join(types)}")
    for name, (_, optional) in types.items():
        if name not in wire and not optional:
            raise ValueError(f"attributes: {name} is missing")
    found = {name: _typed(name, of, wire[name]) for name, (of, _) in types.items() if name in wire}
    one_of("prop", found.get("prop", FORWARD[0]), FORWARD)
    return found


def _post_op(wire: object) -> PostOpUse:
    kind = wire[0] if type(wire) is list and wire else None
    if kind == "binary":
        kind, algorithm, value = _record(wire, _BINARY)
        return PostOpUse(kind, algorithm, value=value)
    if kind != "eltwise":
        raise ValueError(f"post_ops: unknown post-op kind {shorten(kind)}; known: eltwise, binary")
    return PostOpUse(*_record(wire, _ELTWISE))


def _record(wire: object, fields: Mapping[str, str]) -> list[Any]:
    """Return the fields of a list, each of its type."""
    if type(wire) is not list or len(wire) != len(fields):
        raise ValueError(f"expect [{', '.join(fields)}], got {shorten(wire)}")
    return [_typed(name, of, value) for (name, of), value in zip(fields.items(), wire, strict=True)]


def _typed(name: str, of: str, value: Any) -> Any:
    """Return a value of a type, and a list as the tuple that its type is. Raises ValueError for another type."""
    item, is_tuple = _item_type(of)
    known = _TYPES[item]
    if is_tuple and type(value) is list and known.issuperset(map(type, value)):
        return tuple(map(float, value) if item == "float" else value)
    if not is_tuple and type(value) in known:
        return float(value) if item == "float" else value
    raise ValueError(f"{name}: expect {of}, got {shorten(value)}")


@cache
def _item_type(of: str) -> tuple[str, bool]:
    """Return the type of the items of a tuple type, or another type itself; and whether it is a tuple type."""
    item = of.removeprefix("tuple[").removesuffix(", ...]")
    return item, item != of
