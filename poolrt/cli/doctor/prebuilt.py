"""The file of prebuilt kernels: whether there is one, and whether this installation can use it."""

from __future__ import annotations

from poolrt.cachestore.errors import EntryCorrupt, PathRefused
from poolrt.cachestore.prebuilt import PrebuiltFile, prebuilt_file
from poolrt.cli.report import bytes_text
from poolrt.settings import Settings
from poolrt.workers.primitives.toolchain import toolchain

from .finding import Finding, ok, warn

_NAME = "prebuilt kernels"


def finding(settings: Settings) -> Finding:
    """Check the file that the setting `prebuilt` names."""
    path = prebuilt_file(settings.prebuilt)
    if path is None:
        return ok(_NAME, "turned off (the setting prebuilt): missing kernels are compiled")
    try:
        file = PrebuiltFile(path)
    except FileNotFoundError:
        if settings.prebuilt == "package":
            return ok(_NAME, "none in this package: missing kernels are compiled (poolrt cache prebuild)")
        return warn(
            _NAME, f"{path} does not exist", "make it: poolrt cache prebuild --output, or unset POOLRT_PREBUILT"
        )
    except (OSError, EntryCorrupt, PathRefused) as error:
        reason = error.strerror if isinstance(error, OSError) else error.reason
        return warn(_NAME, f"{path}: {reason}", "make it again: poolrt cache prebuild")
    about, versions = file.about, toolchain("cpu")
    made_with = ", ".join(f"{name} {about.get(name, 'unknown')}" for name in versions)
    seen = f"{len(file)} for {about.get('levels', 'unknown')}, {bytes_text(file.bytes)}, made with {made_with}"
    if any(about.get(name) != version for name, version in versions.items()):
        here = ", ".join(f"{name} {version}" for name, version in versions.items())
        return warn(
            _NAME, f"{seen}; never used here, with {here}", "make them for these versions: poolrt cache prebuild"
        )
    return ok(_NAME, seen)
