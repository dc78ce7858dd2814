"""The parser of graphs that arrive from clients: the one place that validates a wire form.

Guarantees: `parse` returns a graph that is consistent (attributes have their types, values are defined before they are
read, results have the shapes that inference gives), or raises GraphError. Lowering checks none of this again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from reprlib import repr as shorten
from typing import Any

from poolrt.cachestore.deferred_dataclass import dataclass, fields
from poolrt.workers.desc import MemoryDesc
from poolrt.workers.desc.attributes import FPMATH_MODES, MAX_POST_OPS
from poolrt.workers.desc.codec import decode
from poolrt.workers.desc.op_desc import FORWARD, one_of
from poolrt.workers.desc.quantisation import KINDS

from .engine_name import require_engine
from .errors import GraphError
from .inference.attributes import attribute_types
from .inference.operands import operand_arguments, result_arguments
from .inference.operations import infer, is_view, op_desc
from .ir import MAX_TENSOR, Attribute, Node, PostOpUse, QuantisationUse, TypedGraph


@dataclass(frozen=True, slots=True)
class WireGraph:
    """The fields of a graph on the wire; those of its lists are below."""

    name: str
    engine: str
    fpmath_mode: str
    values: list[Any]
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    constants: tuple[tuple[int, int], ...]
    nodes: list[Any]


@dataclass(frozen=True, slots=True)
class WireValue:
    """The fields of a value on the wire."""

    dims: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class WireNode:
    """The fields of a node on the wire."""

    kind: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: dict[str, Any]
    post_ops: list[Any]
    quantisation: tuple[QuantisationUse, ...]
    engine: str
    implementation: str


def parse(wire: object) -> TypedGraph:
    """Return the graph of a wire form, see `wire`. Raises GraphError that says what is malformed, and where."""
    try:
        return _Parser().parse(wire)
    except ValueError as error:
        raise GraphError(f"malformed graph: {error}") from error


class _Parser:
    def __init__(self) -> None:
        self.descs: dict[int, MemoryDesc] = {}
        self.defined: set[int] = set()

    def parse(self, wire: object) -> TypedGraph:
        if type(wire) is not dict:
            raise ValueError(f"expect a dict, got {shorten(wire)}")
        graph = decode(WireGraph, [wire.get(field.name) for field in fields(WireGraph)])
        one_of("fpmath_mode", graph.fpmath_mode, FPMATH_MODES)
        for value in graph.values:
            with _at(f"value {len(self.descs)}"):
                self.descs[len(self.descs)] = _desc(value)
        self.define([value for _, value in graph.inputs])
        for value, nbytes in graph.constants:
            self.define([value])
            if nbytes != self.descs[value].nbytes:
                raise ValueError(f"constant {value} has {self.descs[value].nbytes} bytes, not {nbytes}")
        nodes = tuple(self.node(number, node) for number, node in enumerate(graph.nodes))
        self.require_defined([value for _, value in graph.outputs])
        return TypedGraph(
            graph.name,
            require_engine(graph.engine),
            self.descs,
            graph.inputs,
            graph.outputs,
            tuple(value for value, _ in graph.constants),
            nodes,
            graph.fpmath_mode,
        )

    def define(self, values: Sequence[int]) -> None:
        for value in values:
            if value not in self.descs or value in self.defined:
                raise ValueError(f"value {value} is unknown or defined twice")
            self.defined.add(value)

    def require_defined(self, values: Sequence[int]) -> None:
        for value in values:
            if value not in self.defined:
                raise ValueError(f"value {value} is read but not defined before")

    def node(self, number: int, wire: object) -> Node:
        with _at(f"node {number}"):
            given = decode(WireNode, wire)
        with _at(f"node {given.name!r} ({given.kind})"):
            node = Node(
                given.kind,
                given.name,
                given.inputs,
                given.outputs,
                _attributes(given.kind, given.attrs),
                tuple(map(_post_op, given.post_ops)),
                given.quantisation,
                given.engine and require_engine(given.engine),
                given.implementation,
            )
            self.require_defined(node.uses())
            self.define(node.outputs)
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
            for use in node.quantisation:
                one_of("quantisation", use.kind, tuple(KINDS))
            node.check_quantisation(memories, self.descs)
        if results != expected:
            raise ValueError(f"dst: expect {', '.join(map(str, expected))}, got {', '.join(map(str, results))}")
        if len(node.post_ops) > MAX_POST_OPS:
            raise ValueError(f"post_ops: expect at most {MAX_POST_OPS}, got {len(node.post_ops)}")
        for post_op in node.post_ops:
            operand = [] if post_op.value is None else [self.descs[post_op.value]]
            if infer(post_op.kind, [dst, *operand], post_op.attributes()) != (dst,):
                raise ValueError(f"post_ops: {post_op.algorithm} changes the shape or data type of {dst}")


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Name the place in which a ValueError is raised."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _desc(wire: object) -> MemoryDesc:
    value = decode(WireValue, wire)
    if any(size < 1 for size in value.dims):
        raise ValueError(f"dims: expect sizes of at least 1, got {shorten(value.dims)}")
    desc = MemoryDesc(value.dims, value.dtype)
    if desc.nbytes > MAX_TENSOR:
        raise ValueError(f"it has {desc.nbytes} bytes, more than {MAX_TENSOR}")
    return desc


def _attributes(kind: str, wire: dict[str, Any]) -> dict[str, Attribute]:
    types = attribute_types(kind)
    for name in wire:
        if name not in types:
            raise ValueError(f"attributes: unknown {shorten(name)}; known: {', '.join(types)}")
    for name, (_, optional) in types.items():
        if name not in wire and not optional:
            raise ValueError(f"attributes: {name} is missing")
    found: dict[str, Attribute] = {}
    for name in wire:
        with _at(f"attributes: {name}"):
            found[name] = decode(types[name][0], wire[name])
    one_of("prop", wire.get("prop", FORWARD[0]), FORWARD)
    return found


def _post_op(wire: object) -> PostOpUse:
    kind = wire[0] if type(wire) is list and wire else None
    with _at("post_ops"):
        if kind == "binary":
            _, algorithm, value = decode(tuple[str, str, int], wire)
            return PostOpUse(kind, algorithm, value=value)
        if kind != "eltwise":
            raise ValueError(f"unknown post-op kind {shorten(kind)}; known: eltwise, binary")
        return PostOpUse(*decode(tuple[str, str, float, float], wire))
