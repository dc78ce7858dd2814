"""Parts of a model: nodes that one plan computes, given tensors that the plans of other parts have computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.cachestore.kept_property import kept_property
from poolrt.graph.onnx.domains import ONNX_DOMAINS
from poolrt.graph.onnx.element_types import number_of
from poolrt.graph.onnx.model_file import onnx_package, tensor
from poolrt.graph.onnx.node_order import in_order
from poolrt.graph.onnx.operators.random_numbers import draws
from poolrt.graph.onnx.read_node import names_read, read_nodes

from .strings import STRING, find_strings, stored_strings, string_tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.graph.builder import Graph

    from .session_model import SessionModel

#: Operators that make sequences of tensors, which are in no array.
_MAKE_SEQUENCES: Final = (
    "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceMap", "SplitToSequence",
)  # fmt: skip


@dataclass(eq=False)
class Body:
    """The nodes of a model's graph, or of a branch of it, and what they read.

    ``nodes`` are in an order in which each is behind those that it reads. ``constants`` are the initialisers by name, ``given``
    the names of tensors that come from outside, and ``types`` the TensorProto.DataType of those tensors that are known so far.
    """

    model: SessionModel
    nodes: Sequence[Any]
    constants: Mapping[str, NDArray[Any]]
    given: frozenset[str]
    types: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: SessionModel,
        nodes: Sequence[Any],
        constants: Mapping[str, NDArray[Any]],
        given: Iterable[str],
        types: Mapping[str, int] | None = None,
    ) -> Body:
        """Return the body of nodes in any order. Nodes that only store strings become constants."""
        outside = frozenset(given)
        kept = {name: array for name, array in constants.items() if name not in outside}
        others = []
        for node in nodes:
            texts = stored_strings(node)
            if texts is None:
                others.append(node)
            else:
                kept.update((name, texts) for name in node.output[:1])
        return cls(model, in_order(read_nodes(others), kept.__contains__), kept, outside, dict(types or {}))

    @kept_property
    def maker(self) -> dict[str, int]:
        """The number of the node that computes a name."""
        made: dict[str, int] = {}
        for number, node in enumerate(self.nodes):
            for name in node.output:
                if name and name not in self.constants and name not in self.given:
                    made.setdefault(name, number)
        return made

    @kept_property
    def reads(self) -> Sequence[frozenset[str]]:
        """The names that each node reads, its branches included: those of this body and from outside."""
        known = {*self.maker, *self.given, *self.constants}
        return [names_read([node]) & known for node in self.nodes]

    @kept_property
    def fixed(self) -> frozenset[int]:
        """The nodes that read constants alone, but no strings, and draw nothing: every part that needs them computes them."""
        found: set[int] = set()
        _, of_strings = find_strings(self.nodes, self._stored_strings)
        for number, names in enumerate(self.reads):
            known = all(name in self.constants or self.maker.get(name) in found for name in names)
            if known and number not in of_strings and not draws(self.nodes[number]):
                found.add(number)
        return frozenset(found)

    @kept_property
    def sequences(self) -> frozenset[str]:
        """The names of sequences of tensors."""
        return frozenset(_sequences(self.nodes, ()))

    @property
    def strings(self) -> frozenset[str]:
        """The names of strings. Read it when the types of all that comes from outside are known."""
        return self._strings[0]

    @property
    def of_strings(self) -> frozenset[int]:
        """The nodes of strings, see `find_strings`. Read it when the types of all that comes from outside are known."""
        return self._strings[1]

    def whole(self, outputs: Iterable[str], label: str) -> Part:
        """Return the part that has all nodes that outputs need."""
        wanted = tuple(dict.fromkeys(outputs))
        numbers = self.before(self.maker[name] for name in wanted if name in self.maker)
        return Part(self, frozenset(numbers) - self.fixed, wanted, label)

    def before(self, numbers: Iterable[int]) -> set[int]:
        """Return nodes and all that compute what they read."""
        found: set[int] = set()
        left = list(numbers)
        while left:
            number = left.pop()
            if number not in found:
                found.add(number)
                left += [self.maker[name] for name in self.reads[number] if name in self.maker]
        return found

    def branch(self, graph: Any, given: Iterable[str]) -> Body:
        """Return the body of a branch of a node, whose inputs are ``given``: it reads names around it too."""
        inside = {*given, *(name for node in graph.node for name in node.output)}
        own = {
            each.name: string_tensor(each) if each.data_type == STRING else tensor(each, None)
            for each in graph.initializer
        }
        outer = {name: array for name, array in self.constants.items() if name not in inside}
        reads = names_read(graph.node, (each.name for each in graph.output)) - inside - own.keys()
        fixed, around = self._around(reads)
        return Body.of(self.model, [*fixed, *graph.node], {**outer, **own}, {*(around - inside - own.keys()), *given})

    def of_numbers(self, node: Any, strings: Iterable[str]) -> Body:
        """Return the body of one node of strings, to which they are numbers that come from outside."""
        fixed, around = self._around(names_read([node]))
        constants = {name: array for name, array in self.constants.items() if name not in self._stored_strings}
        return Body.of(self.model, [*fixed, node], constants, {*(around - {*node.output}), *strings})

    def knows(self, name: str) -> bool:
        """Return whether a name is computed or given here."""
        return name in self.maker or name in self.given or name in self.constants

    def _around(self, reads: Iterable[str]) -> tuple[list[Any], set[str]]:
        """Return the fixed nodes that names need, and the names of all else that is computed or given here."""
        needed = self.before(self.maker[name] for name in reads if self.maker.get(name) in self.fixed)
        fixed = [self.nodes[number] for number in sorted(needed)]
        made = {name for node in fixed for name in node.output}
        return fixed, {*self.given, *self.maker} - made

    @kept_property
    def _stored_strings(self) -> frozenset[str]:
        return frozenset(name for name, array in self.constants.items() if array.dtype == object)

    @kept_property
    def _strings(self) -> tuple[frozenset[str], frozenset[int]]:
        given = (name for name, number in self.types.items() if number == STRING)
        names, numbers = find_strings(self.nodes, {*self._stored_strings, *given})
        return frozenset(names), frozenset(numbers)


@dataclass(frozen=True, eq=False)
class Part:
    """Some nodes of a body, by number, without those that are fixed. Each part of a session has another ``label``."""

    body: Body
    members: frozenset[int]
    outputs: tuple[str, ...]
    label: str

    @kept_property
    def nodes(self) -> Sequence[Any]:
        """The nodes in order, with the fixed ones that they need."""
        return [self.body.nodes[number] for number in self._numbers]

    @kept_property
    def inputs(self) -> tuple[str, ...]:
        """The names that other parts compute, or that come from outside."""
        made = {name for node in self.nodes for name in node.output}
        names = [name for number in self._numbers for name in sorted(self.body.reads[number])]
        return tuple(
            name
            for name in dict.fromkeys((*names, *self.outputs))
            if name not in made and name not in self.body.constants
        )

    @kept_property
    def only(self) -> Any | None:
        """The only node that is not fixed, None if there are several."""
        return self.body.nodes[next(iter(self.members))] if len(self.members) == 1 else None

    def node_of(self, name: str) -> Any | None:
        """Return the node that computes a name here, None if there is none."""
        number = self.body.maker.get(name)
        return self.body.nodes[number] if number in self.members and number is not None else None

    def graph(self, shapes: Mapping[str, Sequence[int]], values: Mapping[str, NDArray[Any]]) -> Graph:
        """Return the graph for inputs of these shapes and values. Raises InvalidGraph and NotImplemented."""
        body, onnx = self.body, onnx_package()
        inputs = []
        for name in self.inputs:
            port = onnx.ValueInfoProto(name=name)
            port.type.tensor_type.elem_type = body.types[name]
            inputs.append(port)
        read = {*self.outputs, *(name for number in self._numbers for name in body.reads[number])}
        constants = {name: array for name, array in body.constants.items() if name in read}
        view = SimpleNamespace(
            node=self.nodes,
            input=inputs,
            output=[onnx.ValueInfoProto(name=name) for name in self.outputs],
            initializer=(),
            sparse_initializer=(),
            name=body.model.name,
        )
        graph = body.model.part_graph(view, constants, shapes, values)
        found = graph.output_types
        body.types.update({name: number_of(found[name]) for name in self.outputs})
        return graph

    def cut(self, stop: str, label: Callable[[], str]) -> tuple[Part, Part] | None:
        """Cut before the node that computes ``stop``, so that what it reads is known; behind it if that is known already.

        None if the node is alone.
        """
        body = self.body
        at = body.maker.get(stop)
        if at is None or at not in self.members:
            return None
        here, names = {at}, set[str]()
        left = [at]
        while left:
            for name in body.reads[left.pop()]:
                number = body.maker.get(name)
                if number not in self.members or number is None:
                    continue
                if name not in body.sequences:
                    names.add(name)
                elif number not in here:
                    here.add(number)
                    left.append(number)
        return self._apart(body.before(body.maker[name] for name in names) & self.members or here, label)

    def cut_at_strings(self, label: Callable[[], str]) -> tuple[Part, Part] | None:
        """Cut between nodes of strings and others, so that the first part has none or is made of them; None for one part."""
        body = self.body
        strings, first = body.of_strings & self.members, set[int]()
        for number in sorted(strings):
            if body.before([number]) & self.members <= {*first, number}:
                first.add(number)
        for number in strings if not first else ():
            before = (body.before([number]) & self.members) - {number}
            if before.isdisjoint(strings):
                first |= before
        return self._apart(first, label) if first else None

    def _apart(self, first: set[int], label: Callable[[], str]) -> tuple[Part, Part] | None:
        """Return the part of nodes that read no others of this part, and that of the rest; None if there is no rest."""
        body = self.body
        rest = set(self.members - first)
        if not rest:
            return None
        while True:
            read = {*self.outputs, *(name for number in rest for name in body.reads[number])}
            crossing = [name for number in sorted(first - rest) for name in body.nodes[number].output if name in read]
            again = {body.maker[name] for name in crossing if name in body.sequences}
            if not again:
                break
            rest |= again
        if rest == self.members:
            return None
        kept = tuple(name for name in self.outputs if name not in crossing)
        before = Part(body, frozenset(first), tuple(crossing), label())
        return before, Part(body, frozenset(rest), kept, label())

    @kept_property
    def _numbers(self) -> Sequence[int]:
        body = self.body
        needed = {name for number in self.members for name in body.reads[number]} | {*self.outputs}
        fixed = body.before(body.maker[name] for name in needed if body.maker.get(name) in body.fixed)
        return sorted(self.members | fixed)


def _sequences(nodes: Sequence[Any], outer: Iterable[str]) -> set[str]:
    """Return the names of sequences of tensors, those of ``outer`` included."""
    found = set(outer)
    for node in nodes:
        if node.domain not in ONNX_DOMAINS or not node.output:
            continue
        if node.op_type in _MAKE_SEQUENCES or (node.op_type == "Identity" and found.intersection(node.input)):
            found.add(node.output[0])
        elif node.op_type == "If":
            for attribute in node.attribute:
                if attribute.name == "then_branch":
                    inside = _sequences(attribute.g.node, found)
                    pairs = zip(node.output, attribute.g.output, strict=False)
                    found.update(name for name, result in pairs if result.name in inside)
        elif node.op_type == "Loop":
            found.update(name for name, first in zip(node.output, node.input[2:], strict=False) if first in found)
    return found
