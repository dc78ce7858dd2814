"""`poolrt check`: whether and how an ONNX model will run, without a pool and without a compiler."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from poolrt.cli.command_line import add_common
from poolrt.cli.drawing_option import add_draw, require_folder, write_drawing
from poolrt.cli.model_option import add_open, model_path, open_arguments, require_file
from poolrt.cli.numbers import positive
from poolrt.cli.plan_text import cell, fates, say_fates
from poolrt.cli.report import JobFailed, Report, UsageError, bytes_text
from poolrt.cli.stage_text import say_stages
from poolrt.cli.streams import say
from poolrt.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from poolrt.graph.errors import GraphError, UnsupportedNode
    from poolrt.model_check import ModelCheck
    from poolrt.plan_listing import PlanListing

_DESCRIPTION: Final = """\
Check whether an ONNX model will run, and how: inputs, outputs, operators, data types, memory, the implementations of its
steps, and which nodes are fused, folded or computed by a fallback.

A model that cannot run is reported with all missing operators, and all unsupported options, at once: exit status 1.
So is one that only sessions of poolrt.onnx run, in stages: lines say where these end, and show the plans that are known before
a run, or say that the model computes with strings.
Nothing is compiled, and no process is started.
"""
_EPILOG: Final = """\
examples:
  poolrt check resnet50.onnx
  poolrt check model.onnx --engine opencl:0
  poolrt check model.onnx --json | jq '.unsupported[].operator'
  poolrt check model.onnx --draw model.svg     a picture of the graph
  poolrt check --operators                the operators that poolrt has

--json prints model, runs, unsupported: [{operator, reason, node, count, missing}], for a model that sessions cut into stages
first_stage: [tensor] and stages: [{nodes, operators, ends_with, waits_for, course, draws, error, plan: {steps}}], and for a
model that runs engine, threads, nodes, inputs: [{name, dtype, shape, declared}], outputs, operators: {operator: nodes},
data_types: {type: tensors}, memory: {weights, arena, workspace, scratchpad} in bytes, steps: [{operation, implementation,
engine, count}], fused (nodes that share a step), folded, removed, views: [{name, operator}], references: [step],
expanded: {operator: nodes}
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("model", type=model_path, nargs="?", metavar="MODEL.onnx", help="the model")
    parser.add_argument(
        "--operators", action="store_true", help="list the ONNX operators that poolrt has, without a model"
    )
    add_open(parser)
    add_draw(parser)
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="threads of one worker (default: cores / workers)"
    )
    parser.add_argument("--engine", metavar="ENGINE", help="cpu, opencl or opencl:INDEX (default: cpu)")
    add_common(parser, _execute, overrides=("threads", "engine"))


def _execute(options: argparse.Namespace, settings: Settings, report: Report) -> int:
    if options.operators:
        return _list_operators(report)
    if options.model is None:
        raise UsageError("the following arguments are required: MODEL.onnx (see poolrt check --help)")
    require_file(options.model)

    require_folder(options.draw)
    given = open_arguments(options)
    from poolrt.graph.errors import GraphError, UnsupportedNode
    from poolrt.model_check import check_model

    try:
        check = check_model(options.model, **given, settings=settings)
    except UnsupportedNode as error:
        return _report_unsupported(options.model, error, given, settings, report)
    except GraphError as error:
        _say_stages(options.model, error, given, settings, report)
        raise JobFailed(str(error)) from error
    if options.draw:
        write_drawing(options.draw, check.plan, f"{check.name} on {check.engine}")
    _say_check(str(options.model), check, report)
    report.result(_check_object(str(options.model), check))
    return 0


def _list_operators(report: Report) -> int:
    from poolrt.graph.onnx.control_flow import CONTROL_FLOW
    from poolrt.graph.onnx.operators import OPERATORS, OPERATORS_OF, SEQUENCES

    foreign = (f"{domain}.{name}" for domain, operators in OPERATORS_OF.items() for name in operators)
    names = [*sorted((*OPERATORS, *CONTROL_FLOW, *SEQUENCES)), *sorted(foreign)]
    for name in names:
        report.say(name)
    report.result({"operators": names})
    return 0


def _say_check(model: str, check: ModelCheck, report: Report) -> None:
    from poolrt.graph.errors import one_line

    threads = f"{check.threads} thread{'s' * (check.threads > 1)} a worker"
    nodes, steps = check.operators.values(), check.plan.listing.steps
    report.say(f"{model}: it runs on {check.engine}, {threads}: {sum(nodes)} nodes, {len(steps)} steps a run")
    for title, ports in (("input", check.inputs), ("output", check.outputs)):
        for port in ports:
            report.say(one_line(f"{title:<12}{port}"))
    report.say(one_line(f"operators   {_counts(check.operators)}"))
    report.say(f"data types  {_counts(check.data_types)} (tensors)")
    say_fates(check.plan, report)
    memory = check.memory
    shared = f"weights {bytes_text(memory.weights)}, inputs and outputs {bytes_text(memory.arena)}"
    own = f"workspace {bytes_text(memory.workspace)}, scratchpad {bytes_text(memory.scratchpad)}"
    report.say(f"memory      {shared}; each worker: {own}")
    report.say_table(_rows(check.plan.listing), right=frozenset({0}))


def _check_object(model: str, check: ModelCheck) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "model": model,
        "runs": True,
        "unsupported": [],
        "engine": check.engine,
        "threads": check.threads,
        "nodes": sum(check.operators.values()),
        "inputs": [asdict(port) for port in check.inputs],
        "outputs": [{name: getattr(port, name) for name in ("name", "dtype", "shape")} for port in check.outputs],
        "operators": check.operators,
        "data_types": check.data_types,
        "memory": asdict(check.memory),
        "steps": _steps(check.plan.listing),
        **fates(check.plan),
        "expanded": Counter(node.operator for node in check.plan.expanded),
    }


def _rows(listing: PlanListing) -> list[list[str]]:
    """Return a table of the kinds of steps."""
    kinds = _kinds(listing).most_common()
    return [["steps", "operation", "implementation", "engine"], *([str(count), *names] for names, count in kinds)]


def _steps(listing: PlanListing) -> list[dict[str, Any]]:
    """Return the kinds of steps as JSON objects."""
    names = ("operation", "implementation", "engine")
    return [{**dict(zip(names, step, strict=True)), "count": count} for step, count in _kinds(listing).most_common()]


def _kinds(listing: PlanListing) -> Counter[tuple[str, str, str]]:
    return Counter((step.operation, step.implementation, step.engine) for step in listing.steps)


def _counts(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counted.items())


def _report_unsupported(
    model: Path, error: UnsupportedNode, given: Mapping[str, Any], settings: Settings, report: Report
) -> int:
    from dataclasses import asdict

    rows = [["nodes", "operator", "first node", "reason"]]
    rows += [[str(use.count), *map(cell, (use.operator, use.node, use.reason))] for use in error.uses]
    report.say_table(rows, right=frozenset({0}))
    stages = _say_stages(model, error, given, settings, report)
    report.result({"model": str(model), "runs": False, "unsupported": [asdict(use) for use in error.uses], **stages})
    say(f"poolrt: {model}: {error}")
    return 1


def _say_stages(
    model: Path, error: GraphError, given: Mapping[str, Any], settings: Settings, report: Report
) -> dict[str, Any]:
    """Say where sessions cut a model that has no single plan; return it as JSON."""
    return say_stages(
        model, error, given, settings, report,
        lambda plan: report.say_table(_rows(plan.listing), " " * 12, frozenset({0})),
        lambda plan: {"steps": _steps(plan.listing)},
    )  # fmt: skip
