"""The mutable copy of a graph that a pass changes and freezes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from poolrt.cachestore.deferred_dataclass import replace
from poolrt.workers.desc import MemoryDesc

from ..constant import Constant
from ..ir import GraphIR, Node


class Rewriter:
    """Collects the nodes of a new graph; values that are renamed on the way are renamed in all that follows."""

    def __init__(self, ir: GraphIR) -> None:
        self._ir = ir
        self._values = dict(ir.values)
        self._next = max(ir.values, default=-1) + 1
        self._renamed: dict[int, int] = {}
        self.constants = dict(ir.constants)
        self.nodes: list[Node] = []

    def value(self, desc: MemoryDesc) -> int:
        """Add a value."""
        value = self._next
        self._next += 1
        self._values[value] = desc
        return value

    def dims(self, value: int) -> tuple[int, ...]:
        """Return the shape of a value."""
        return self._values[value].dims

    def constant(self, constant: Constant) -> int:
        """Add a constant."""
        value = self.value(constant.desc)
        self.constants[value] = constant
        return value

    def rename(self, old: int, new: int) -> None:
        """Let every later reader of ``old`` (and the graph's outputs) read ``new``."""
        self._renamed[old] = self.resolve(new)

    def resolve(self, value: int) -> int:
        """Return the current name of a value."""
        return self._renamed.get(value, value)

    def apply_renames(self, node: Node) -> Node:
        """Return a node that reads its values under their current names."""
        if not any(value in self._renamed for value in node.uses()):
            return node
        post_ops = tuple(p if p.value is None else replace(p, value=self.resolve(p.value)) for p in node.post_ops)
        quantisation = tuple(replace(q, value=self.resolve(q.value)) for q in node.quantisation)
        inputs = tuple(map(self.resolve, node.inputs))
        return replace(node, inputs=inputs, post_ops=post_ops, quantisation=quantisation)

    def finish(self, nodes: Iterable[Node] | None = None, outputs: Iterable[tuple[str, int]] | None = None) -> GraphIR:
        """Freeze the new graph."""
        named = self._ir.outputs if outputs is None else outputs
        outputs = tuple((name, self.resolve(value)) for name, value in named)
        nodes = tuple(self.nodes if nodes is None else nodes)
        return replace(self._ir, values=self._values, outputs=outputs, constants=self.constants, nodes=nodes)


def only_reader(value: int, readers: Mapping[int, Sequence[Node]], leaving: AbstractSet[int]) -> Node | None:
    """Return the node that alone reads a value, and once; None if there is none, or if the value is an output."""
    found = readers[value]
    return found[0] if len(found) == 1 and value not in leaving else None
