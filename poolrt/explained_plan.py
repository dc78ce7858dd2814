"""The steps of a plan with the nodes of the model that each computes, and what became of the other nodes."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from .graph.origins import find_origins

if TYPE_CHECKING:
    from .graph.builder import Graph
    from .graph.ir import TypedGraph
    from .graph.origins import Origins
    from .graph.source_node import SourceNode
    from .plan_listing import PlanListing, PlannedStep

#: Characters of a node's name that a plan keeps.
_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class ExplainedPlan:
    """A plan, and for each of its steps the nodes of the model that it computes; an inserted reorder has none.

    ``views`` take no step: they only change how memory is read, or the tensor has the form already. ``folded`` are known
    before the first run. ``removed`` are nodes that change nothing, or that no output depends on. ``graph`` is the optimised
    graph; for each of its nodes ``sources`` has the nodes of the model that it computes, ``steps`` the numbers of its steps.
    """

    listing: PlanListing
    graph: TypedGraph
    sources: tuple[tuple[SourceNode, ...], ...]
    steps: tuple[tuple[int, ...], ...]
    nodes: tuple[tuple[SourceNode, ...], ...]
    views: tuple[SourceNode, ...]
    folded: tuple[SourceNode, ...]
    removed: tuple[SourceNode, ...]

    @property
    def fused(self) -> int:
        """The number of nodes that share a step with another one."""
        return len({node for nodes in self.nodes if len(nodes) > 1 for node in nodes})

    @property
    def expanded(self) -> tuple[SourceNode, ...]:
        """The nodes that are computed by the functions that ONNX defines them by."""
        every = (*self.views, *self.folded, *self.removed, *(node for nodes in self.nodes for node in nodes))
        return tuple(sorted({node for node in every if node.expanded}, key=lambda node: node.first))

    @property
    def references(self) -> tuple[PlannedStep, ...]:
        """The steps that a reference implementation computes, or a part of them."""
        return tuple(step for step in self.listing.steps if step.is_reference)


def explain_plan(listing: PlanListing, graph: Graph, optimised: TypedGraph | None = None) -> ExplainedPlan:
    """Return a graph's plan with the nodes of each step; ``optimised`` is the graph that the plan was made from."""
    from .graph import passes

    built = graph.to_ir()
    if optimised is None:
        optimised = passes.optimize(built)
    return _join(listing, optimised, find_origins(graph.sources, built, optimised))


def _join(listing: PlanListing, optimised: TypedGraph, origins: Origins) -> ExplainedPlan:
    # Names may repeat; nodes become steps in their order.
    waiting: defaultdict[str, deque[tuple[int, tuple[SourceNode, ...]]]] = defaultdict(deque)
    made = {step.name for step in listing.steps}
    for number, (node, sources) in enumerate(zip(optimised.nodes, origins.nodes, strict=True)):
        # Steps of their own for post-ops: the last nodes of the model are theirs.
        apart = [name for use in node.post_ops if (name := f"{node.name}/{use.algorithm}"[:_NAME]) in made]
        own = max(len(sources) - len(apart), 0)
        waiting[node.label[:_NAME]].append((number, sources[:own]))
        for place, name in enumerate(apart):
            waiting[name].append((number, sources[own + place : own + place + 1]))
    nodes: list[tuple[SourceNode, ...]] = []
    steps: list[list[int]] = [[] for _ in optimised.nodes]
    for number, step in enumerate(listing.steps):
        node_number, sources = waiting[step.name].popleft() if waiting[step.name] else (None, ())
        nodes.append(sources)
        if node_number is not None:
            steps[node_number].append(number)
    left = {source for sources in origins.nodes for source in sources} - {each for found in nodes for each in found}
    views = tuple(sorted({*left, *origins.views}, key=lambda source: source.first))
    computed = tuple(nodes), views, origins.folded, origins.removed
    return ExplainedPlan(listing, optimised, origins.nodes, tuple(map(tuple, steps)), *computed)
