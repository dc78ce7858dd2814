"""Which nodes of a model each node of its optimised graph computes, and what became of the others.

The passes keep the number of a value that they still compute, or the name of a node that they change. A node of which
neither is left was absorbed by the nodes that read its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

from poolrt.cachestore.deferred_dataclass import dataclass

from .inference.operations import is_view
from .ir import GraphIR, Node, TypedGraph
from .passes.identities import is_identity
from .source_node import SourceNode

_Name = TypeVar("_Name", str, int)


@dataclass(frozen=True, slots=True)
class Origins:
    """``nodes`` has, for each node of the optimised graph, the nodes of the model that it computes.

    ``views`` are nodes of which only views are left, ``folded`` those whose results are known before the first run,
    ``removed`` those that change nothing or that no output depends on.
    """

    nodes: tuple[tuple[SourceNode, ...], ...]
    views: tuple[SourceNode, ...]
    folded: tuple[SourceNode, ...]
    removed: tuple[SourceNode, ...]


def find_origins(sources: Sequence[SourceNode], built: GraphIR, optimised: TypedGraph) -> Origins:
    """Return the origins of an optimised graph's nodes; without ``sources``, the graph's own nodes are the model's."""
    sources = sources or _own_nodes(built)
    fates = _fates(built, optimised)
    readers = _readers([source.reads for source in sources], [source.writes for source in sources])
    nodes: list[list[SourceNode]] = [[] for _ in optimised.nodes]
    gone: dict[str, list[SourceNode]] = {"view": [], "folded": [], "removed": []}
    reached: list[AbstractSet[int]] = [frozenset()] * len(sources)
    for number in reversed(range(len(sources))):
        source = sources[number]
        own = fates[source.first : source.last]
        kinds = {fate.kind for fate in own}
        places: AbstractSet[int] = {each for fate in own for each in fate.places}
        following = {each for reader in readers[number] for each in reached[reader]}
        reached[number] = places or following
        if source.known or kinds == {"folded"}:
            gone["folded"].append(source)
        elif not places and "view" in kinds:
            gone["view"].append(source)
        elif not own or (not places and "removed" in kinds):
            gone["removed"].append(source)
        else:
            # A pattern that the import replaces leaves nodes that no other node of the graph reads.
            places = places or following
            for each in places:
                nodes[each].append(source)
            if not places:
                gone["removed"].append(source)
    return Origins(
        tuple(tuple(reversed(each)) for each in nodes),
        *(tuple(reversed(gone[kind])) for kind in ("view", "folded", "removed")),
    )


@dataclass(frozen=True, slots=True)
class _Fate:
    """What became of a node of the graph: the numbers of the optimised nodes that compute it, or the kind of its end."""

    places: AbstractSet[int] = frozenset()
    kind: str = ""


def _own_nodes(built: GraphIR) -> list[SourceNode]:
    return [
        SourceNode(
            node.name, node.kind, 0, tuple(map(str, node.uses())), tuple(map(str, node.outputs)), number, number + 1
        )
        for number, node in enumerate(built.nodes)
    ]


def _fates(built: GraphIR, optimised: TypedGraph) -> list[_Fate]:
    by_value = {value: number for number, node in enumerate(optimised.nodes) for value in node.outputs}
    by_name = _unique_names(optimised.nodes)
    known = _unique_names(built.nodes)
    folded = _folded_nodes(built)
    readers = _readers([node.uses() for node in built.nodes], [node.outputs for node in built.nodes])
    found = [_Fate()] * len(built.nodes)
    #: The nodes that compute what is left of each node, also beyond views and identities.
    reached: list[AbstractSet[int]] = [frozenset()] * len(built.nodes)
    for number in reversed(range(len(built.nodes))):
        node = built.nodes[number]
        own = {by_value[value] for value in node.outputs if value in by_value}
        if not is_view(node.kind):
            own = {_computing(each, optimised, by_value) for each in own}
        if node.name in known and node.name in by_name:
            own.add(by_name[node.name])
        reached[number] = own or {each for reader in readers[number] for each in reached[reader]}
        if own:
            found[number] = _Fate(own)
        elif folded[number]:
            found[number] = _Fate(kind="folded")
        elif not reached[number]:
            found[number] = _Fate(kind="dead")
        elif is_identity(node, built):
            found[number] = _Fate(kind="removed")
        elif is_view(node.kind):
            found[number] = _Fate(kind="view")
        else:
            found[number] = _Fate(reached[number])
    return found


def _computing(number: int, optimised: TypedGraph, by_value: Mapping[int, int]) -> int:
    """Return the node that computes what a view shows: a pass may leave a view in the place of a node that it merges."""
    while is_view(optimised.nodes[number].kind) and optimised.nodes[number].inputs[0] in by_value:
        number = by_value[optimised.nodes[number].inputs[0]]
    return number


def _folded_nodes(built: GraphIR) -> list[bool]:
    """Return for each node whether it is a view of a constant, which is a constant itself."""
    known: set[int] = set(built.constants)
    found = []
    for node in built.nodes:
        found.append(is_view(node.kind) and node.inputs[0] in known)
        if found[-1]:
            known.update(node.outputs)
    return found


def _unique_names(nodes: Iterable[Node]) -> dict[str, int]:
    """Return the numbers of the nodes whose name no other one has."""
    found: dict[str, int] = {}
    repeated: set[str] = set()
    for number, node in enumerate(nodes):
        if found.setdefault(node.name, number) != number:
            repeated.add(node.name)
    return {name: number for name, number in found.items() if name not in repeated}


def _readers(reads: Iterable[Sequence[_Name]], writes: Iterable[Sequence[_Name]]) -> list[list[int]]:
    """Return the numbers of the nodes that read results of each node."""
    by_value: dict[_Name, list[int]] = {}
    for number, values in enumerate(reads):
        for value in values:
            by_value.setdefault(value, []).append(number)
    return [[reader for value in values for reader in by_value.get(value, ())] for values in writes]
