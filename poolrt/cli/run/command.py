"""`poolrt run`: load an ONNX model on a pool, run it, compare and save the results."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from poolrt.cli.command_line import add_common
from poolrt.cli.drawing_option import add_draw, require_folder, write_drawing
from poolrt.cli.model_option import add_open, model_path, open_arguments, require_file
from poolrt.cli.numbers import finite, natural, positive
from poolrt.cli.plan_text import cell, fates, node_object, say_fates
from poolrt.cli.process_store import use_store_of
from poolrt.cli.reach import reach
from poolrt.cli.report import JobFailed, Report, UsageError, bytes_text, seconds_text
from poolrt.cli.stage_text import say_stages
from poolrt.cli.streams import say
from poolrt.settings import Settings

from .profile_report import profile_object, say_profile

if TYPE_CHECKING:
    from poolrt.explained_plan import ExplainedPlan
    from poolrt.graph.builder import Graph
    from poolrt.graph.errors import GraphError
    from poolrt.inprocess.profile import Profile
    from poolrt.plan_listing import PlannedStep
    from poolrt.pool import Pool

#: The fewest runs of a profile.
_PROFILED: Final = 10
_DESCRIPTION: Final = """\
Run an ONNX model on a pool of worker processes.

Kernels come from the shared cache. Missing ones are compiled by several processes at once and kept for all later runs,
so a second run of the same model creates nothing.
"""
_EPILOG: Final = """\
examples:
  poolrt run resnet50.onnx --random-inputs 0 --top 5
  poolrt run model.onnx --input image=cat.npy --save out.npz
  poolrt run model.onnx --input image=cat.npy --expect expected.npz     fails if they differ
  poolrt run model.onnx --random-inputs 0 --workers 4 --repeat 200 --json
  poolrt run model.onnx --random-inputs 0 --engine opencl:0
  poolrt run model.onnx --random-inputs 0 --plan --profile                        what the steps are, and what they cost
  poolrt run model.onnx --random-inputs 0 --socket /run/user/1000/poolrt.sock     on the pool of `poolrt serve`

random inputs are numpy.random.default_rng(SEED).standard_normal(shape), or integers(0, 2, shape) for integers and
booleans, drawn in the order of the model's inputs

--json prints, with --plan, plan: {reorders, crossings, constants, steps: [{name, operation, implementation, engine, nested,
operands, results, nodes}], fused, folded, removed, views, expanded: [{name, operator}], references: [step]}, and with
--profile, profile: {threads, runs, steps_s, peak: {flops_per_s, bytes_per_s}, steps: [{name, operation, implementation,
engine, seconds, share, operations, nbytes, of_peak, nodes}]}
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("model", type=model_path, metavar="MODEL.onnx", help="the model")
    values = parser.add_argument_group("inputs and outputs")
    values.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="value of one input, a .npy, .npz or .pb file; repeat for more",
    )
    values.add_argument("--random-inputs", type=natural, metavar="SEED", help="random values for the inputs not given")
    add_open(values)
    values.add_argument(
        "--expect",
        type=Path,
        metavar="FILE",
        help="expected outputs: .npz with arrays named as the outputs, or one array in .npz, .npy or .pb; "
        "exit 1 if they differ",
    )
    values.add_argument("--rtol", type=finite, default=1e-3, help="relative tolerance of --expect (default: 1e-3)")
    values.add_argument("--atol", type=finite, default=1e-7, help="absolute tolerance of --expect (default: 1e-7)")
    values.add_argument("--top", type=positive, metavar="K", help="show the K largest values of each output")
    values.add_argument(
        "--plan",
        action="store_true",
        help="show the steps of a run: nodes, implementations, engines, layouts, reorders; and nodes that are no steps; of a "
        "model that only sessions of poolrt.onnx run, the stages",
    )
    values.add_argument(
        "--profile",
        action="store_true",
        help="time each step in this process, slowest first, over the runs of --repeat, 10 at least: implementations, GFLOP/s "
        "of steps that sum products, GB/s of others, and their share of the rates measured on this machine",
    )
    add_draw(values)
    values.add_argument("--save", type=Path, metavar="OUT.npz", help="write the outputs")
    pool = parser.add_argument_group("pool")
    pool.add_argument("--workers", type=positive, metavar="N", help="worker processes (default: one for each core)")
    pool.add_argument("--threads", type=positive, metavar="N", help="threads of one worker (default: cores / workers)")
    pool.add_argument("--engine", metavar="ENGINE", help="cpu, opencl or opencl:INDEX (default: cpu)")
    pool.add_argument(
        "--socket",
        metavar="PATH",
        help="use the pool of the `poolrt serve` that listens there; '' for a pool of this command (default: POOLRT_SOCKET)",
    )
    pool.add_argument(
        "--repeat",
        type=positive,
        default=1,
        metavar="K",
        help="run K times, one run at a time on each worker (default: 1)",
    )
    pool.add_argument(
        "--read-only",
        action="store_true",
        default=None,
        help="read the cache and write nothing to it: missing kernels are created for this run alone",
    )
    add_common(parser, _execute, overrides=("workers", "threads", "engine", "read_only", "socket"))


def _execute(options: argparse.Namespace, settings: Settings, report: Report) -> int:
    # Errors that need no process come before one is started.
    require_file(options.model)
    given = open_arguments(options)
    require_folder(options.draw)
    if options.save and not options.save.parent.is_dir():
        raise UsageError(f"--save {options.save}: there is no folder {options.save.parent}")
    if settings.socket and (options.workers or options.threads or options.read_only):
        text = f"the server at {settings.socket_path} decides workers, threads and cache: give their options to poolrt serve"
        raise UsageError(f"{_socket_source(options)}: {text}, or --socket '' for a pool of this command")

    # The pool's processes start while this one imports and reads; an error from here on ends them again.
    with _pool(options, settings) as pool:
        from poolrt import load_onnx
        from poolrt.explained_plan import explain_plan
        from poolrt.graph.errors import GraphError

        from . import measure, tensors

        if settings.redis_url and not settings.socket:
            _reach_redis(settings)
        limit = settings.constant_bytes
        try:
            graph = load_onnx(options.model, **given, engine=settings.engine, constant_bytes=limit)
        except GraphError as error:
            stages = _say_stages(options.model, error, given, settings, report) if options.plan else {}
            if not stages:
                raise
            report.result({"model": str(options.model), "error": str(error), **stages})
            say(f"poolrt: {error}")
            return 1
        ports = [tensors.Port(name, dims, graph.input_types[name]) for name, dims in graph.inputs.items()]
        inputs = tensors.read_inputs(options.input, options.random_inputs, ports)
        outputs = graph.outputs
        expected = tensors.read_expected(options.expect, list(outputs), list(inputs), outputs) if options.expect else {}
        tolerance = measure.Tolerance(options.rtol, options.atol)
        model = pool.load(graph)
        plan = explain_plan(model.plan(), graph) if options.plan or options.draw else None
        measured = measure.repeat(model, inputs, expected, tolerance, options.repeat, pool.workers)
        stats, threads = pool.stats(), pool.threads
    profile = None
    if options.profile:
        use_store_of(settings)
        profile = _profile(graph, inputs, threads, max(options.repeat, _PROFILED))
    if options.draw and plan is not None:
        write_drawing(options.draw, plan, f"{graph.name} on {settings.engine}")
    if options.save:
        tensors.save(options.save, measured.results)

    found: dict[str, Any] = {
        "model": str(options.model),
        "nodes": len(graph.to_ir().nodes),
        "engine": settings.engine,
        "primitives": model.report["primitives"],
        "load_s": model.report["load_s"],
        "first_run_s": measured.run_s[0],
        "median_run_s": statistics.median(measured.run_s[1:] or measured.run_s),
        "runs_per_s": options.repeat / measured.wall_s,
        "outputs": {name: {"shape": list(a.shape), "dtype": str(a.dtype)} for name, a in measured.results.items()},
        "workers": [
            {name: worker[name] for name in ("pid", "numba_imported", "rss_bytes")} for worker in stats["workers"]
        ],
        "workers_lost": stats["workers_lost"],
    }
    if options.expect:
        found["max_abs_error"] = measured.max_abs_error
    if options.top:
        found["top"] = {name: tensors.top(array, options.top) for name, array in measured.results.items()}
    if options.plan and plan is not None:
        found["plan"] = _plan(plan)
    if profile is not None:
        found["profile"] = profile_object(profile)
    _print_result(found, options, plan, report)
    if profile is not None:
        say_profile(profile, report)
    report.result(found)
    return 0


def _profile(graph: Graph, inputs: Mapping[str, Any], threads: int, runs: int) -> Profile:
    from poolrt.inprocess.profile import profile_graph
    from poolrt.workers.threadpools.native import NativePool

    if threads == 1:
        return profile_graph(graph, inputs, runs=runs)
    with NativePool(threads) as pool:
        return profile_graph(graph, inputs, runs=runs, threadpool=pool)


def _socket_source(options: argparse.Namespace) -> str:
    return "--socket" if options.socket else "POOLRT_SOCKET (the setting socket)"


def _pool(options: argparse.Namespace, settings: Settings) -> Pool:
    from poolrt.errors import CoordinatorLoss
    from poolrt.pool import Pool, connect

    if settings.socket:
        try:
            return connect(config=options.config, socket=settings.socket, engine=options.engine)
        except CoordinatorLoss as error:
            remedy = f"start one with poolrt serve --socket {settings.socket_path}, or use --socket '' for a pool of this command"
            raise JobFailed(f"{_socket_source(options)}: {error}: {remedy}") from error
    given = {"config": options.config, "read_only": options.read_only}
    return Pool(options.workers, options.threads, options.engine, **given)


def _reach_redis(settings: Settings) -> None:
    """Raise JobFailed if the named Redis does not answer; the pool itself would go on without it."""
    from poolrt.cachestore import CacheStore

    with CacheStore.connect(**settings.store_arguments()) as store:
        reach(store)


def _print_result(
    found: Mapping[str, Any], options: argparse.Namespace, explained: ExplainedPlan | None, report: Report
) -> None:
    made = found["primitives"]
    tiers = {tier: f"from {tier}" for tier in ("memory", "files", "prebuilt", "redis")}
    ways = {"waited": "created for others meanwhile", "derived": "derived from kernels of others", **tiers}
    reused = ", ".join(f"{made[source]} {way}" for source, way in ways.items() if made[source])
    report.say(f"{found['model']}: {found['nodes']} nodes on {found['engine']}, {len(found['workers'])} workers")
    report.say(f"primitives  {made['total']}: {made['created']} created{', ' + reused if reused else ''}")
    report.say(f"load        {seconds_text(found['load_s'])}")
    report.say(f"first run   {seconds_text(found['first_run_s'])}")
    if options.repeat > 1:
        report.say(f"median run  {seconds_text(found['median_run_s'])} ({found['runs_per_s']:.1f} runs/s)")
    report.say(
        f"memory      {bytes_text(sum(worker['rss_bytes'] for worker in found['workers']))} resident in all workers"
    )
    for name, output in found["outputs"].items():
        report.say(f"output      {name} {output['dtype']}{output['shape']}")
        for index, value in found.get("top", {}).get(name, []):
            report.say(f"            {index:>6}  {value:.6g}")
    if options.expect:
        report.say(
            f"error       {found['max_abs_error']:.3g} at most, within rtol {options.rtol:g}, atol {options.atol:g}"
        )
    if options.save:
        report.say(f"saved       {options.save}")
    if "plan" in found:
        plan = found["plan"]
        report.say(
            f"plan        {len(plan['steps'])} steps, {plan['reorders']} reorders, {plan['crossings']} across engines"
        )
        _say_steps(plan, report)
        if explained is not None:
            say_fates(explained, report)


def _say_stages(
    model: Path, error: GraphError, given: Mapping[str, Any], settings: Settings, report: Report
) -> dict[str, Any]:
    """Print the stages of a model that has no single plan, and return them as JSON; nothing if it has none."""
    return say_stages(model, error, given, settings, report, lambda plan: _say_steps(_plan(plan), report), _plan)


def _say_steps(plan: Mapping[str, Any], report: Report) -> None:
    report.say_table([_row(step) for step in plan["steps"]], indent=" " * 12)


def _row(step: Mapping[str, Any]) -> list[str]:
    tensors = [", ".join(step[what]) for what in ("operands", "results")]
    nodes = " + ".join(node["operator"] for node in step["nodes"])
    return [*map(cell, (step["name"], step["operation"], step["implementation"], step["engine"], nodes)), *tensors]


def _plan(plan: ExplainedPlan) -> dict[str, Any]:
    """Return a plan as a JSON object; "crossings" counts the reorders across engines."""
    listing = plan.listing
    steps = [
        {**_step(step), "nodes": list(map(node_object, nodes))}
        for step, nodes in zip(listing.steps, plan.nodes, strict=True)
    ]
    constants = [_step(step) for step in listing.constants]
    counts = {"reorders": listing.reorders, "crossings": listing.cross_engine_reorders}
    return {**counts, **fates(plan), "constants": constants, "steps": steps}


def _step(step: PlannedStep) -> dict[str, Any]:
    names = {name: getattr(step, name) for name in ("name", "operation", "implementation", "engine")}
    tensors = {"operands": list(map(str, step.operands)), "results": list(map(str, step.results))}
    return {**names, "nested": list(step.nested), **tensors}
