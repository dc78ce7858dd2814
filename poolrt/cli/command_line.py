"""The command line: parse it, run one command, return an exit status.

Status 0: done. 1: the job failed, with a one-line reason on standard error. 2: wrong usage. 130: interrupted.
Only the chosen command's module is imported, so `poolrt --help` and a typing mistake answer at once.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, cast

from poolrt.settings import Settings, SettingsError
from poolrt.version import VERSION

from .options import describe_choice, describe_rest, describe_value, require_options
from .report import JobFailed, OutputFailed, Report, UsageError
from .streams import discard_output, say

#: Command -> (module of this package, one line for the list). Each module offers `configure(parser)` and `execute`.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("run.command", "run an ONNX model on a pool of workers"),
    "check": ("check", "show whether and how an ONNX model will run, and all operators that are missing"),
    "warm": ("warm", "create the kernels that a deployment needs, before its processes start"),
    "serve": ("serve", "keep a pool running that many programs share"),
    "status": ("status", "show the workers, queue, memory and cache of a running pool"),
    "top": ("top", "show the same again and again, with runs per second"),
    "stop": ("stop", "stop a running pool"),
    "cache": ("cache.command", "inspect, bound, verify, export or clear the shared kernel cache"),
    "doctor": ("doctor.command", "check this machine, its libraries, Redis and OpenCL drivers"),
}

_EPILOG: Final = """\
examples:
  poolrt doctor
  poolrt run resnet50.onnx --random-inputs 0 --top 5
  poolrt serve --workers 4 &
  poolrt cache stats --json

exit status: 0 done, 1 the job failed, 2 wrong usage, 130 interrupted
"""

Execute = Callable[[argparse.Namespace, Settings, Report], int]


def run(words: Sequence[str], interrupted: Callable[[], bool] = lambda: False) -> int:
    """Run a command line and return its exit status.

    An error becomes one line. Raises KeyboardInterrupt, also for an error that follows from one: then ``interrupted`` is true.
    """
    words = list(words)
    report = Report(as_json="--json" in words)
    try:
        return _run_command(words, report)
    except Exception as error:
        if interrupted():
            raise KeyboardInterrupt from error
        if isinstance(error, BrokenPipeError | OutputFailed):
            discard_output(error.__cause__ if isinstance(error.__cause__, OSError) else error)
            return 1
        # Any error ends here as one line; --traceback shows all of it.
        known = isinstance(error, UsageError | SettingsError | JobFailed)
        if "--traceback" in words and not known:
            raise
        return _print_error(error, 2 if isinstance(error, UsageError | SettingsError) else 1, report)


def _run_command(words: Sequence[str], report: Report) -> int:
    parser = make_parser(words)
    require_options(parser, words)
    options, rest = parser.parse_known_args(words)
    if rest:
        raise UsageError(describe_rest(parser, words, rest))
    try:
        settings = Settings.load(options.config, **{name: getattr(options, name) for name in options.overrides})
    except SettingsError as error:
        if error.source == "argument" and error.key in options.overrides:
            raise UsageError(describe_value(parser, words, error.key, error.reason)) from error
        raise
    return cast("Execute", options.execute)(options, settings, report)


def _print_error(error: Exception, status: int, report: Report) -> int:
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, UsageError | JobFailed | SettingsError):
        text = f"{type(error).__name__}: {text}" if not _is_ours(error) else text
    say(f"poolrt: {text}")
    if report.as_json:
        try:
            print(json.dumps({"error": {"type": type(error).__name__, "message": text}}), flush=True)
        except (OSError, ValueError) as failure:
            discard_output(failure)
    return status


def _is_ours(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] == "poolrt"


class _Parser(argparse.ArgumentParser):
    """A parser whose error is one line, as all errors of this program; argparse would print the usage too."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise UsageError for a word that is no command; argparse would name none that is near."""
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            raise UsageError(describe_choice(action, value, self.prog))
        super()._check_value(action, value)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help or the version; argparse would ignore that they cannot be written."""
        try:
            (file or sys.stderr).write(message)
        except OSError as error:
            raise OutputFailed(str(error)) from error


def make_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser for a command line; only the command named in ``words`` gets its options."""
    parser = _Parser(
        prog="poolrt",
        description="Numeric graphs on a pool of worker processes; every kernel is compiled once and shared.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"poolrt {VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in words if word in COMMANDS), None)
    for name, (module, line) in COMMANDS.items():
        command = commands.add_parser(
            name, help=line, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        if name == chosen:
            importlib.import_module(f".{module}", __package__).configure(command)
    return parser


def add_common(parser: argparse.ArgumentParser, execute: Execute, overrides: Sequence[str] = ()) -> None:
    """Add the options that every command has, and the function that executes the command.

    ``overrides`` names the options that override the setting of the same name.
    """
    group = parser.add_argument_group("common options")
    group.add_argument("--json", action="store_true", help="one JSON object on standard output, text on standard error")
    group.add_argument("--config", metavar="FILE.toml", help="settings file (default: POOLRT_CONFIG)")
    group.add_argument("--traceback", action="store_true", help="show where an unexpected error came from")
    parser.set_defaults(execute=execute, overrides=tuple(overrides))
