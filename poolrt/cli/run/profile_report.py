"""The times of the steps, as `poolrt run --profile` prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poolrt.cli.plan_text import cell, node_object
from poolrt.cli.report import Report

if TYPE_CHECKING:
    from poolrt.inprocess.profile import Profile, StepProfile


def say_profile(profile: Profile, report: Report) -> None:
    """Print the steps, the slowest first."""
    peak = profile.peak
    threads = f"{profile.threads} thread{'s' * (profile.threads > 1)}"
    report.say(
        f"profile     {profile.runs} runs in this process on {threads}, steps take {_time(profile.seconds)} a run; "
        f"peak here {peak.operations / 1e9:.1f} GFLOP/s, {peak.nbytes / 1e9:.1f} GB/s"
    )
    rows = [["time", "of run", "rate", "of peak", "step", "operation", "implementation", "engine", "nodes"]]
    report.say_table(rows + list(map(_row, profile.steps)), indent=" " * 12, right=frozenset({0, 1, 2, 3}))


def profile_object(profile: Profile) -> dict[str, Any]:
    """Return a profile as a JSON object."""
    return {
        "threads": profile.threads,
        "runs": profile.runs,
        "steps_s": profile.seconds,
        "peak": {"flops_per_s": profile.peak.operations, "bytes_per_s": profile.peak.nbytes},
        "steps": list(map(_step_object, profile.steps)),
    }


def _row(each: StepProfile) -> list[str]:
    of_peak = "" if each.of_peak is None else f"{each.of_peak:.0%}"
    step = each.step
    nodes = " + ".join(node.operator for node in each.nodes)
    names = (step.name, step.operation, step.implementation, step.engine, nodes)
    return [_time(each.seconds), f"{each.share:.1%}", each.rate, of_peak, *map(cell, names)]


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _step_object(each: StepProfile) -> dict[str, Any]:
    names = {name: getattr(each.step, name) for name in ("name", "operation", "implementation", "engine")}
    numbers = {name: getattr(each, name) for name in ("seconds", "share", "operations", "nbytes", "of_peak")}
    return {**names, **numbers, "nodes": list(map(node_object, each.nodes))}
