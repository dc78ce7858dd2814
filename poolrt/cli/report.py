"""The output of a command: text for people, or ONE JSON object.

With ``--json``, standard output holds the object alone, also after an error, so ``poolrt ... --json | jq`` always works;
the text goes to standard error. Without it, the text goes to standard output and remarks to standard error.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from poolrt.cachestore.deferred_dataclass import dataclass

from .streams import say


class UsageError(Exception):
    """Wrong usage of a command: exit status 2. The message says what to write instead."""


class JobFailed(Exception):
    """The command was valid and its job failed: exit status 1. The message is the one-line reason."""


class OutputFailed(Exception):
    """Standard output cannot be written: exit status 1. The cause says why."""


@dataclass(frozen=True, slots=True)
class Report:
    """Writes the output of one command."""

    as_json: bool

    def say(self, line: str = "") -> None:
        """Print a line of the text result."""
        if self.as_json:
            say(line)
        else:
            _print(line)

    def say_table(self, rows: Sequence[Sequence[str]], indent: str = "", right: frozenset[int] = frozenset()) -> None:
        """Print rows as aligned lines; see `table`."""
        for line in table(rows, right=right):
            self.say(f"{indent}{line}")

    def remark(self, line: str) -> None:
        """Print a line that is no part of the result: progress, hints."""
        say(line)

    def result(self, value: Mapping[str, Any]) -> None:
        """Print the result as JSON with ``--json``, else nothing."""
        if self.as_json:
            _print(json.dumps(_plain(value), allow_nan=False))

    def flush(self) -> None:
        """Write what was printed so far."""
        try:
            sys.stdout.flush()
        except OSError as error:
            raise OutputFailed(str(error)) from error


def _print(line: str) -> None:
    """Print a line of the result. Raises OutputFailed, so that no command takes the error for one of its own files."""
    try:
        print(line)
    except OSError as error:
        raise OutputFailed(str(error)) from error


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: numbers that are not finite become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value


def table(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Return rows as aligned lines; the columns with an index in ``right`` are flush right."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    cells = [
        [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]
    return ["  ".join(row).rstrip() for row in cells]


def bytes_text(count: int) -> str:
    """Return a number of bytes for people: ``17 B``, ``4.2 MiB``."""
    if count < 1024:
        return f"{count} B"
    if count < 1024**2:
        return f"{count / 1024:.1f} KiB"
    if count < 1024**3:
        return f"{count / 1024**2:.1f} MiB"
    return f"{count / 1024**3:.1f} GiB"


def seconds_text(seconds: float) -> str:
    """Return a time for people: ``3.1 ms``, ``2.40 s``."""
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
