"""`poolrt cache export` and `poolrt cache import`: write all entries to one signed file, and read such a file."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from poolrt.cli.report import JobFailed, Report, UsageError, bytes_text
from poolrt.cli.streams import say

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore

#: Least time, in seconds, between two lines of progress if standard error is no terminal.
_BETWEEN_LINES_S: Final = 1.0


def export(options: argparse.Namespace, store: CacheStore, report: Report) -> int:
    """Write a bundle."""
    path: Path = options.file
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}")
    try:
        with _Progress("exported") as progress:
            done = store.export(path, progress.show)
    except OSError as error:
        raise JobFailed(f"{path}: {error.strerror}") from error
    report.say(f"{done.entries} entries, {bytes_text(done.bytes)}, written to {path}")
    if done.skipped:
        report.say(f"{done.skipped} left out: removed meanwhile, damaged or forged (poolrt cache verify removes these)")
    report.result(done.as_dict())
    return 0


def import_(options: argparse.Namespace, store: CacheStore, report: Report) -> int:
    """Read a bundle into the store."""
    path: Path = options.file
    if not path.is_file():
        raise UsageError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
    try:
        with _Progress("imported") as progress:
            done = store.import_(path, progress.show, options.node_only)
    except OSError as error:
        raise JobFailed(f"{path}: {error.strerror}") from error
    place = "Redis and this node's files" if done.redis else "this node's files"
    report.say(f"{done.imported} of {done.entries} entries, {bytes_text(done.bytes)}, imported into {place}")
    for count, reason in (
        (done.present, "were already present"),
        (done.no_room, "left out: no room within the capacity"),
        (done.busy, "left out: being created, cleared during the import, or not writable"),
    ):
        if count:
            report.say(f"{count} {reason}")
    report.result(done.as_dict())
    return 0


class _Progress:
    """Progress on standard error: one line that is overwritten on a terminal, else a new line at most each second."""

    def __init__(self, done: str) -> None:
        self._done = done
        self._terminal = sys.stderr.isatty()
        self._printed = time.monotonic()
        self._open = False

    def show(self, number: int, of: int) -> None:
        """Print that `number` entries of `of` are done."""
        now = time.monotonic()
        if self._terminal:
            say(f"\r{self._done} {number} of {of}", end="")
            self._open = True
        elif now - self._printed >= _BETWEEN_LINES_S:
            say(f"{self._done} {number} of {of}")
            self._printed = now

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            say("")
