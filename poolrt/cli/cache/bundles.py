"""`poolrt cache export` and `poolrt cache import`: write all entries to one signed file, and read such a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from poolrt.cli.cache.progress import Progress
from poolrt.cli.report import JobFailed, Report, UsageError, bytes_text

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore


def export(options: argparse.Namespace, store: CacheStore, report: Report) -> int:
    """Write a bundle."""
    path: Path = options.file
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}")
    try:
        with Progress("exported") as progress:
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
        with Progress("imported") as progress:
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
