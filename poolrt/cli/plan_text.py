"""The nodes of a model and the steps that they became, as the commands `run --plan` and `check` print them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from poolrt.cli.report import Report

if TYPE_CHECKING:
    from poolrt.explained_plan import ExplainedPlan
    from poolrt.graph.source_node import SourceNode
    from poolrt.plan_listing import PlannedStep

#: Names in one line of the text; JSON has all.
_MOST_NAMES: Final = 8
#: Most characters of a name in a table.
_CELL: Final = 80


def cell(text: str) -> str:
    """Return a name for a table: names in a file may have any length, and characters that control a terminal."""
    from poolrt.graph.errors import one_line

    return one_line(f"{text:.{_CELL}}")


def some(names: Sequence[str]) -> str:
    """Return the first of some names, and the number of the others."""
    more = len(names) - _MOST_NAMES
    return ", ".join(map(cell, names[:_MOST_NAMES])) + (f" and {more} more" if more > 0 else "")


def say_fates(plan: ExplainedPlan, report: Report) -> None:
    """Print what became of the nodes that are no steps of their own, and which steps are slow, a line each."""
    if plan.fused:
        shared = [nodes for nodes in plan.nodes if len(nodes) > 1]
        report.say(f"fused       {plan.fused} nodes into {len(shared)} steps: {_patterns(shared)}")
    for title, what, nodes in (
        ("folded", "known before the first run", plan.folded),
        ("removed", "of no effect on the outputs", plan.removed),
        ("views", "without a step of its own", plan.views),
    ):
        if nodes:
            report.say(f"{title:<12}{_count(len(nodes), 'node')} {what}: {some(list(map(str, nodes)))}")
    references = [f"{step.name} ({step.operation} {_implementations(step)})" for step in plan.references]
    if references:
        report.say(
            f"references  {_count(len(references), 'step')} by plain and slow implementations: {some(references)}"
        )
    if plan.expanded:
        names = some(list(map(str, plan.expanded)))
        report.say(f"expanded    {_count(len(plan.expanded), 'node')} by the function that ONNX defines: {names}")


def fates(plan: ExplainedPlan) -> dict[str, Any]:
    """Return the same as a JSON object."""
    listed = {"folded": plan.folded, "removed": plan.removed, "views": plan.views, "expanded": plan.expanded}
    return {name: list(map(node_object, nodes)) for name, nodes in listed.items()} | {
        "fused": plan.fused,
        "references": [step.name for step in plan.references],
    }


def node_object(node: SourceNode) -> dict[str, Any]:
    """Return a node of the model as a JSON object."""
    return {"name": node.name, "operator": node.operator}


def _implementations(step: PlannedStep) -> str:
    return " with ".join(dict.fromkeys((step.implementation, *step.nested)))


def _patterns(shared: Sequence[Sequence[SourceNode]]) -> str:
    counted = Counter(" + ".join(node.operator for node in nodes) for nodes in shared)
    return some([f"{operators} ({count})" for operators, count in counted.most_common()])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
