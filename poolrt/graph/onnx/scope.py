"""Where names have a meaning: the model's graph, the body of a function, or a branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from poolrt.cachestore.deferred_dataclass import dataclass, field

from .expansion import Expansion
from .read_node import names_read
from .tensor_sequence import Item


@dataclass(frozen=True, slots=True)
class Scope:
    """Values by name. ``read`` are the names that are read, ``given`` the attributes of a function's node, by name.

    ``path`` is the label of the node that a function or branch belongs to, ``depth`` the number of those around it.
    """

    opset: int
    read: frozenset[str]
    found: dict[str, Item | None] = field(default_factory=dict)
    given: Mapping[str, Any] | None = None
    outer: Scope | None = None
    path: str = ""
    depth: int = 0

    @classmethod
    def of_graph(cls, nodes: Sequence[Any], outputs: Sequence[Any], opset: int) -> Scope:
        """Return the scope of a model's graph."""
        return cls(opset, names_read(nodes, (each.name for each in outputs)))

    @classmethod
    def of_function(
        cls,
        body: Expansion,
        attributes: Sequence[Any],
        operands: Sequence[Item | None],
        path: str,
        depth: int,
    ) -> Scope:
        """Return the scope of a function's body, in which its parameters are the operands of a node."""
        given = {**body.defaults, **{each.name: each for each in attributes}}
        found: dict[str, Item | None] = dict.fromkeys(body.inputs)
        found.update(zip(body.inputs, operands, strict=False))
        return cls(body.opset, names_read(body.nodes, body.outputs), found, given, None, path, depth)

    @classmethod
    def of_branch(cls, graph: Any, outer: Scope, path: str) -> Scope:
        """Return the scope of a branch, which reads values around it too."""
        read = names_read(graph.node, (each.name for each in graph.output))
        return cls(outer.opset, read, {}, outer.given, outer, path, outer.depth + 1)

    def has(self, name: str) -> bool:
        """Return whether a name has a meaning here; that of a missing optional operand has."""
        return name in self.found or (self.outer is not None and self.outer.has(name))

    def find(self, name: str) -> Item | None:
        """Return the value of a name, None for a missing optional operand."""
        if name in self.found or self.outer is None:
            return self.found.get(name)
        return self.outer.find(name)

    def attributes(self, node: Any) -> Sequence[Any]:
        """Return the attributes of a node; those that refer to attributes of the function are replaced by them."""
        if self.given is None:
            return cast("Sequence[Any]", node.attribute)
        found = []
        for each in node.attribute:
            if not each.ref_attr_name:
                found.append(each)
            elif each.ref_attr_name in self.given:
                copied = type(each)()
                copied.CopyFrom(self.given[each.ref_attr_name])
                copied.name = each.name
                found.append(copied)
        return found

    def label(self, name: str) -> str:
        """Return the label of a node with the path to it."""
        return f"{self.path}/{name}" if self.path else name
