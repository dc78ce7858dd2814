"""`poolrt doctor`: run every check in turn, print a line for each and a summary."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from poolrt.cli.command_line import add_common
from poolrt.cli.numbers import finite
from poolrt.cli.report import Report, table
from poolrt.settings import Settings, config_file, unknown_variables

from .finding import Finding, State, ok, warn

_DESCRIPTION: Final = """\
Show what this machine offers poolrt, and what is wrong with it.

Checks the interpreter, libraries, processor, memory, shared memory, limits, the cache folder with its signing key and weights,
Redis, and the OpenCL drivers (in a child process with a time limit). Starts no server and changes nothing.

Each line begins with ok, warn (costs speed or a feature) or FAIL (poolrt cannot work). Exit status 1 only on a FAIL.
"""
_EPILOG: Final = """\
examples:
  poolrt doctor
  poolrt doctor --json | jq '.findings[] | select(.state != "ok")'
  POOLRT_REDIS_URL=redis://cache.example:6379/0 poolrt doctor
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument(
        "--opencl-timeout",
        type=finite,
        default=30.0,
        metavar="SECONDS",
        help="time limit for each question to the OpenCL drivers (default: 30)",
    )
    add_common(parser, _execute)


def _execute(options: argparse.Namespace, settings: Settings, report: Report) -> int:
    found: list[Finding] = []
    for finding in _check(options, settings):
        found.append(finding)
        mark = finding.state.upper() if finding.state is State.FAIL else finding.state
        report.say(table([[f"{mark:<4}", f"{finding.name:<22}", finding.seen]])[0])
        if finding.advice:
            report.say(f"{'':<30}-> {finding.advice}")
    counts = {state: sum(finding.state is state for finding in found) for state in State}
    healthy = counts[State.FAIL] == 0
    report.say(f"\n{counts[State.OK]} ok, {counts[State.WARN]} warnings, {counts[State.FAIL]} failures")
    report.result(
        {
            "healthy": healthy,
            "counts": {str(state): count for state, count in counts.items()},
            "findings": [
                {"name": finding.name, "state": str(finding.state), "seen": finding.seen, "advice": finding.advice}
                for finding in found
            ],
        }
    )
    return 0 if healthy else 1


def _check(options: argparse.Namespace, settings: Settings) -> Iterator[Finding]:
    from . import constants, libraries, machine, modules, opencl, prebuilt, store

    yield _check_settings(options.config)
    yield from machine.findings(settings)
    yield from libraries.findings()
    yield modules.finding()
    yield from store.findings(settings)
    yield prebuilt.finding(settings)
    yield constants.finding(settings)
    yield from opencl.findings(options.opencl_timeout)


def _check_settings(config: str | None) -> Finding:
    unknown = unknown_variables()
    if unknown:
        return warn(
            "settings", f"unknown variables: {', '.join(unknown)}", "check the spelling; README.md lists the variables"
        )
    file = config_file(config)
    return ok("settings", f"environment, {file}" if file else "environment and defaults")
