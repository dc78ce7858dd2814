"""`poolrt check`: whether and how an ONNX model will run, without a pool and without a compiler."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from poolrt.cli.command_line import add_common
from poolrt.cli.model_option import add_shapes, model_path, require_file
from poolrt.cli.numbers import positive
from poolrt.cli.report import JobFailed, Report, UsageError
from poolrt.cli.streams import say
from poolrt.settings import Settings

if TYPE_CHECKING:
    from poolrt.graph.builder import Graph
    from poolrt.graph.errors import UnsupportedNode

_DESCRIPTION: Final = """\
Check whether an ONNX model will run, and how: its inputs and outputs, and the implementations of its steps.

A model that cannot run is reported with all missing operators, and all unsupported options, at once: exit status 1.
Nothing is compiled, and no process is started.
"""
_EPILOG: Final = """\
examples:
  poolrt check resnet50.onnx
  poolrt check model.onnx --engine opencl:0
  poolrt check model.onnx --json | jq '.unsupported[].operator'
  poolrt check --operators                the operators that poolrt has

--json prints model, runs, unsupported: [{operator, reason, node, count, missing}], and for a model that runs engine, nodes,
inputs, outputs, steps: [{operation, implementation, engine, count}], expanded: {operator: nodes}
"""

#: Most characters of a name in a table.
_CELL: Final = 80


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("model", type=model_path, nargs="?", metavar="MODEL.onnx", help="the model")
    parser.add_argument(
        "--operators", action="store_true", help="list the ONNX operators that poolrt has, without a model"
    )
    add_shapes(parser)
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

    from poolrt.graph.errors import GraphError, UnsupportedNode
    from poolrt.graph.onnx.importer import load_onnx

    shapes = dict(options.shape)
    limit = settings.constant_bytes
    try:
        graph = load_onnx(
            options.model, batch=options.batch, shapes=shapes, engine=settings.engine, constant_bytes=limit
        )
        steps = _steps(graph, settings)
    except UnsupportedNode as error:
        return _report_unsupported(str(options.model), error, report)
    except GraphError as error:
        raise JobFailed(str(error)) from error
    _report_steps(str(options.model), graph, steps, report)
    return 0


def _list_operators(report: Report) -> int:
    from poolrt.graph.onnx.control_flow import CONTROL_FLOW
    from poolrt.graph.onnx.operators import OPERATORS

    names = sorted((*OPERATORS, *CONTROL_FLOW))
    for name in names:
        report.say(name)
    report.result({"operators": names})
    return 0


def _steps(graph: Graph, settings: Settings) -> Counter[tuple[str, str, str]]:
    """Return how many steps of a run have each operation, implementation and engine. Raises LoweringError."""
    from poolrt.coordinator.configuration import Configuration
    from poolrt.graph import passes
    from poolrt.graph.lower import lower
    from poolrt.workers.engines.target import cpu_target
    from poolrt.workers.plans.execution_plan import Step

    ir = passes.optimize(graph.to_ir())
    targets = {"cpu": cpu_target(settings.max_cpu_isa or None)}
    if ir.engine != "cpu":
        from poolrt.workers.engines.opencl import opencl_target

        targets[ir.engine] = opencl_target(int(ir.engine.partition(":")[2]))
    lowered = lower(ir, targets, Configuration.of(settings).threads)
    found: Counter[tuple[str, str, str]] = Counter()
    for step in lowered.plan.steps:
        if isinstance(step, Step):
            primitive = lowered.primitives[step.primitive]
            engine = lowered.plan.engines[lowered.plan.primitives[step.primitive]]
            found[primitive.op.kind, primitive.impl_name(), engine] += 1
        else:
            found["reorder", "cross-engine", ""] += 1
    return found


def _report_steps(model: str, graph: Graph, steps: Counter[tuple[str, str, str]], report: Report) -> None:
    from poolrt.graph.errors import one_line

    types = {**graph.input_types, **graph.output_types}
    inputs, outputs = (
        [{"name": name, "dtype": types[name], "shape": list(dims)} for name, dims in ports.items()]
        for ports in (graph.inputs, graph.outputs)
    )
    nodes = len(graph.to_ir().nodes)
    report.say(f"{model}: it runs on {graph.engine}: {nodes} nodes, {steps.total()} steps a run")
    if graph.expanded:
        listed = ", ".join(f"{one_line(name)} ({count})" for name, count in graph.expanded.items())
        report.say(f"computed by the operators of their definitions: {listed}")
    for title, ports in (("input", inputs), ("output", outputs)):
        for port in ports:
            report.say(one_line(f"{title:<8}{port['name']} {port['dtype']}{port['shape']}"))
    rows = [["steps", "operation", "implementation", "engine"]]
    rows += [[str(count), *names] for names, count in steps.most_common()]
    report.say_table(rows, right=frozenset({0}))
    names = ("operation", "implementation", "engine")
    found_steps: list[dict[str, Any]] = [
        {**dict(zip(names, step, strict=True)), "count": count} for step, count in steps.most_common()
    ]
    found = {"model": model, "runs": True, "unsupported": [], "engine": graph.engine, "nodes": nodes}
    report.result({**found, "inputs": inputs, "outputs": outputs, "steps": found_steps, "expanded": graph.expanded})


def _report_unsupported(model: str, error: UnsupportedNode, report: Report) -> int:
    from dataclasses import asdict

    from poolrt.graph.errors import one_line

    rows = [["nodes", "operator", "first node", "reason"]]
    # Names in a file may have any length, and characters that control a terminal.
    rows += [
        [str(use.count), *(one_line(f"{cell:.{_CELL}}") for cell in (use.operator, use.node, use.reason))]
        for use in error.uses
    ]
    report.say_table(rows, right=frozenset({0}))
    report.result({"model": model, "runs": False, "unsupported": [asdict(use) for use in error.uses]})
    say(f"poolrt: {model}: {error}")
    return 1
