"""The program `poolrt`: parse the command line, run one command, return an exit status.

Status 0: done. 1: the job failed, with a one-line reason on standard error. 2: wrong usage. 130: interrupted.
Only the chosen command's module is imported, so `poolrt --help` and a typing mistake answer at once.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, cast

from poolrt.settings import Settings, SettingsError
from poolrt.version import VERSION

from .report import JobFailed, Report, UsageError

#: Command -> (module of this package, one line for the list). Each module offers `configure(parser)` and `execute`.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("run.command", "run an ONNX model on a pool of workers"),
    "serve": ("serve", "keep a pool running that many programs share"),
    "status": ("status", "show the workers, queue, memory and cache of a running pool"),
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

exit status: 0 done, 1 the job failed, 2 wrong usage
"""

Execute = Callable[[argparse.Namespace, Settings, Report], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; ``arguments`` defaults to those of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    report = Report(as_json="--json" in words)
    try:
        status = _run_command(words, report)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader of the pipe has exited (`| head`); the interpreter's last flush must not fail on it either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run_command(words: Sequence[str], report: Report) -> int:
    try:
        options = make_parser(words).parse_args(words)
        settings = Settings.load(options.config, **{name: getattr(options, name) for name in options.overrides})
        return cast("Execute", options.execute)(options, settings, report)
    except (UsageError, SettingsError) as error:
        return _print_error(error, 2, report)
    except JobFailed as error:
        return _print_error(error, 1, report)
    except KeyboardInterrupt:
        # An interrupt inside exec() of a text (a dataclass that is made, say) makes CPython end with SIGINT whatever is
        # returned here; the next exec() forgets it.
        exec("")
        print("poolrt: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        # Any error ends here as one line; --traceback shows all of it.
        if "--traceback" in words:
            raise
        return _print_error(error, 1, report)


def _print_error(error: Exception, status: int, report: Report) -> int:
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, UsageError | JobFailed | SettingsError):
        text = f"{type(error).__name__}: {text}" if not _is_ours(error) else text
    print(f"poolrt: {text}", file=sys.stderr)
    if report.as_json:
        print(json.dumps({"error": {"type": type(error).__name__, "message": text}}))
    return status


def _is_ours(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] == "poolrt"


class _Parser(argparse.ArgumentParser):
    """A parser whose error is one line, as all errors of this program; argparse would print the usage too."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


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
