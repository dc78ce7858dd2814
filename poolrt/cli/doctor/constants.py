"""The files of weights that processes of this node share: whether they are used, and which of them no process can use."""

from __future__ import annotations

from poolrt.cachestore.constant_inspection import find_constants
from poolrt.cli.report import bytes_text
from poolrt.settings import Settings

from .finding import Finding, ok, warn

_NAME = "shared weights"


def finding(settings: Settings) -> Finding:
    """Check the folder; changes nothing."""
    most, found = settings.constant_files_bytes, find_constants(settings.constants_folder)
    if not most:
        return ok(_NAME, "turned off (the setting constant_files_bytes): each process has its own")
    seen = f"{found.files} files, {bytes_text(found.bytes)} of {bytes_text(most)}, used by {len(found.processes)} processes"
    if not found.problems:
        return ok(_NAME, seen)
    path, reason = found.problems[0]
    others = f", and {len(found.problems) - 1} more" if len(found.problems) > 1 else ""
    return warn(_NAME, f"{seen}; {path}: {reason}{others}", "remove them: poolrt cache clear, or delete the files")
