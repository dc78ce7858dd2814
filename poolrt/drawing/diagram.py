"""What a picture of a plan shows: a box for each node of the optimised graph, and an edge for each tensor that one reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from poolrt.cachestore.deferred_dataclass import dataclass
from poolrt.graph.errors import one_line
from poolrt.workers.implementations.contract import REFERENCE

if TYPE_CHECKING:
    from poolrt.explained_plan import ExplainedPlan
    from poolrt.graph.ir import Node
    from poolrt.plan_listing import PlannedStep
    from poolrt.workers.desc import MemoryDesc

#: The kinds of boxes, in the order of the legend, and what it says of them.
KINDS: Final = {
    "native": "native kernels",
    "nested": "nested primitives",
    "opencl": "kernels in OpenCL",
    "reference": "reference: plain and slow",
    "view": "view: no step",
    "port": "input or output",
}


@dataclass(frozen=True, slots=True)
class Box:
    """A node: two lines of text, its kind (one of `KINDS`), and the lines that a browser shows below the pointer."""

    title: str
    detail: str
    kind: str
    tooltip: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor from box to box, by their numbers. ``reordered``: the plan has a reorder between the two."""

    source: int
    target: int
    label: str
    reordered: bool = False


@dataclass(frozen=True, slots=True)
class Diagram:
    """Boxes in topological order, edges between them, and lines that stand above the picture."""

    title: str
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    notes: tuple[str, ...]


def make_diagram(plan: ExplainedPlan, title: str) -> Diagram:
    """Return the diagram of a plan; weights and nodes that are folded or removed have no box."""
    graph, steps = plan.graph, plan.listing.steps
    boxes: list[Box] = []
    edges: list[Edge] = []
    made: dict[int, int] = {}
    for name, value in graph.inputs:
        made[value] = len(boxes)
        boxes.append(Box(_text(name), "input", "port"))
    for number, node in enumerate(graph.nodes):
        own = plan.steps[number]
        reordered = _reordered(plan, own[0]) if own else ()
        for place, value in enumerate(node.uses()):
            if value in made:
                label = _shape(graph.values[value])
                edges.append(Edge(made[value], len(boxes), label, place in reordered))
        made.update(dict.fromkeys(node.outputs, len(boxes)))
        boxes.append(_node_box(plan, number, node, [steps[each] for each in own]))
    for name, value in graph.outputs:
        if value in made:  # an output may be a constant
            edges.append(Edge(made[value], len(boxes), _shape(graph.values[value])))
        boxes.append(Box(_text(name), "output", "port"))
    notes = [f"{len(steps)} steps a run, {plan.listing.reorders} of them reorders; weights have no box"]
    for nodes, what in ((plan.folded, "folded: known before the first run"), (plan.removed, "removed: of no effect")):
        if nodes:
            notes.append(f"{len(nodes)} nodes {what}, without a box")
    return Diagram(_text(title), tuple(boxes), tuple(edges), tuple(notes))


def _node_box(plan: ExplainedPlan, number: int, node: Node, steps: list[PlannedStep]) -> Box:
    sources = plan.sources[number]
    title = " + ".join(source.operator for source in sources) or node.kind
    lines = [f"{source}" for source in sources] + list(map(str, steps))
    if not steps:
        return Box(_text(node.kind), _text(node.name), "view", "\n".join(map(_text, lines)))
    detail = f"{steps[0].implementation} · {sources[0].name if sources else node.name}"
    kinds = [_kind(step) for step in steps]
    kind = "reference" if "reference" in kinds else kinds[0]
    return Box(_text(title), _text(detail), kind, "\n".join(map(_text, lines)))


def _kind(step: PlannedStep) -> str:
    if step.implementation.startswith(REFERENCE):
        return "reference"
    if step.implementation.startswith("nested:"):
        return "nested"
    return "opencl" if step.engine.startswith("opencl") else "native"


def _reordered(plan: ExplainedPlan, step: int) -> tuple[int, ...]:
    """Return the places of a step's operands that an inserted reorder wrote: the order is that of the node's values."""
    steps = plan.listing.steps
    inserted = {
        number for number in range(len(steps)) if not plan.nodes[number] and "reorder" in steps[number].operation
    }
    return tuple(place for place, operand in enumerate(steps[step].operands) if operand.step in inserted)


def _shape(desc: MemoryDesc) -> str:
    return f"{desc.dtype} {'x'.join(map(str, desc.dims)) or 'scalar'}"


def _text(text: str) -> str:
    """Return text without control characters, which XML does not have."""
    return one_line(text)
