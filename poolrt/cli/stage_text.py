"""The stages into which sessions cut a model that has no single plan, as the commands `run --plan` and `check` print them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from poolrt.cli.plan_text import some
from poolrt.cli.report import Report
from poolrt.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from poolrt.explained_plan import ExplainedPlan
    from poolrt.graph.errors import GraphError
    from poolrt.onnx.stage_listing import ListedStage


def say_stages(
    model: Path,
    error: GraphError,
    given: Mapping[str, Any],
    settings: Settings,
    report: Report,
    say_plan: Callable[[ExplainedPlan], None],
    plan_object: Callable[[ExplainedPlan], dict[str, Any]],
) -> dict[str, Any]:
    """Say where sessions cut a model whose load raised ``error``, and the plans that are known; return it as JSON objects.

    ``given`` are the arguments of `poolrt.load_onnx` for what the model leaves open.
    """
    from poolrt.graph.errors import GraphError, one_line
    from poolrt.onnx.stage_listing import list_stages
    from poolrt.onnx.stages import computes_strings, stopped_at

    if computes_strings(model):
        report.say(one_line(f"{model}: sessions of poolrt.onnx run it, and compute its strings between plans"))
        return {}
    try:
        stages = list_stages(model, error, settings=settings, **given)
    except GraphError:
        return {}  # the command reports why the model does not load
    if not stages:
        return {}
    names = list(stages[0].ends_with) if len(stages) > 1 else []
    if names:
        cut = f"the first one ends with {', '.join(names)}, for {stopped_at(error)}"
        report.say(one_line(f"{model}: sessions of poolrt.onnx cut it into stages; {cut}"))
    for number, stage in enumerate(stages, 1):
        count = sum(stage.operators.values())
        nodes = f"{count} node{'s' * (count != 1)}"
        report.say(one_line(f"{f'stage {number}':<12}{nodes}: {_how(stage)}; it ends with {some(stage.ends_with)}"))
        if stage.check is not None:
            say_plan(stage.check.plan)
    return {**({"first_stage": names} if names else {}), "stages": [_object(each, plan_object) for each in stages]}


def _how(stage: ListedStage) -> str:
    if stage.check is not None:
        steps = len(stage.check.plan.listing.steps)
        return f"{steps} step{'s' * (steps != 1)} a run"
    if stage.course:
        return f"{stage.course}, which a run takes {'by its branch' if stage.course == 'If' else 'pass by pass'}"
    if stage.draws:
        return f"{stage.draws}, which draws numbers in each run"
    if stage.error:
        return f"no plan: {stage.error}"
    return f"a run makes its plan, when it knows {some(stage.waits_for)}"


def _object(stage: ListedStage, plan_object: Callable[[ExplainedPlan], dict[str, Any]]) -> dict[str, Any]:
    plan = {} if stage.check is None else {"plan": plan_object(stage.check.plan)}
    return {
        "nodes": sum(stage.operators.values()),
        "operators": dict(stage.operators),
        "ends_with": list(stage.ends_with),
        "waits_for": list(stage.waits_for),
        "course": stage.course,
        "draws": stage.draws,
        "error": stage.error,
        **plan,
    }
