"""A node of a model whose fields were read from its message: once, however often the model is imported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import ModelError
from .model_file import onnx_package


class ReadNode:
    """The fields of a NodeProto by their names there, and what follows from them without the shapes of operands.

    A field of a message takes longer to read than one of an object: a session imports its model for each set of sizes.
    """

    __slots__ = ("_values", "attribute", "domain", "input", "name", "op_type", "output", "proto", "reads")

    def __init__(self, proto: Any) -> None:
        self.proto = proto
        self.name: str = proto.name
        self.op_type: str = proto.op_type
        self.domain: str = proto.domain
        self.input: tuple[str, ...] = tuple(proto.input)
        self.output: tuple[str, ...] = tuple(proto.output)
        self.attribute: tuple[Any, ...] = tuple(proto.attribute)
        #: The names that the node and its branches read.
        self.reads = names_read([proto])
        self._values: dict[str, Any] | None = None

    def values(self, label: str) -> dict[str, Any]:
        """Return the values of the attributes by name. ``label`` is the node's name in errors. Raises ModelError."""
        if self._values is None:
            self._values = {each.name: attribute_value(each, label) for each in self.attribute}
        return self._values


def read_nodes(nodes: Iterable[Any]) -> list[ReadNode]:
    """Return the nodes of messages; those that have been read stay as they are."""
    return [node if isinstance(node, ReadNode) else ReadNode(node) for node in nodes]


def names_read(nodes: Iterable[Any], outputs: Iterable[str] = ()) -> frozenset[str]:
    """Return the names that nodes and their branches read, and those of ``outputs``."""
    read = set(outputs)
    left = list(nodes)
    while left:
        node = left.pop()
        if isinstance(node, ReadNode):
            read |= node.reads
            continue
        read.update(node.input)
        for attribute in node.attribute:
            # A branch reads values around it.
            for graph in _graphs(attribute):
                left += graph.node
                read.update(each.name for each in graph.output)
    # An empty name is an optional operand that is missing, and reads no result without a name.
    read.discard("")
    return frozenset(read)


def attribute_value(attribute: Any, label: str) -> Any:
    """Return the value of an attribute. Raises ModelError if it has none."""
    try:
        return onnx_package().helper.get_attribute_value(attribute)
    except ValueError as error:
        # The error of the onnx package contains the whole attribute.
        raise ModelError(
            f"node {label!r}: attribute {attribute.name!r} has no value, or one of unknown type"
        ) from error


def _graphs(attribute: Any) -> Sequence[Any]:
    return (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs
