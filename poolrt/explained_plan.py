"""The steps of a plan with the nodes of the model that each computes, and what became of the other nodes."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
    before the first run. ``removed`` are nodes that change nothing, or that no output depends on.
    """

    listing: PlanListing
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
        """The steps that a reference implementation computes."""
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
    waiting: defaultdict[str, deque[tuple[SourceNode, ...]]] = defaultdict(deque)
    made = {step.name for step in listing.steps}
    for node, sources in zip(optimised.nodes, origins.nodes, strict=True):
        apart = [f"{node.name}/{use.algorithm}"[:_NAME] for use in node.post_ops]
        # Steps of their own for post-ops: the last nodes of the model are theirs.
        alone = apart if apart and apart[0] in made and len(sources) > len(apart) else []
        waiting[node.label[:_NAME]].append(sources[: len(sources) - len(alone)])
        for name, source in zip(alone, sources[len(sources) - len(alone) :], strict=True):
            waiting[name].append((source,))
    nodes = tuple(waiting[step.name].popleft() if waiting[step.name] else () for step in listing.steps)
    computed = {source for sources in nodes for source in sources}
    left = {source for sources in origins.nodes for source in sources} - computed
    views = tuple(sorted({*left, *origins.views}, key=lambda source: source.first))
    return ExplainedPlan(listing, nodes, views, origins.folded, origins.removed)
