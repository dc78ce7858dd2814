"""The compiled files of poolrt's modules: without them, each process compiles what it imports."""

from __future__ import annotations

import os
import shlex
import struct
import sys
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from .finding import Finding, ok, warn

_NAME: Final = "modules"
_PACKAGE: Final = Path(__file__).parents[2]


def finding(package: Path = _PACKAGE) -> Finding:
    """Check that each module of a package has a compiled file, or gets one when it is imported."""
    modules = list(_modules(package))
    missing = [module for module in modules if not _is_compiled(module)]
    if not missing:
        return ok(_NAME, f"{len(modules)}, all compiled")
    seen = f"{len(missing)} of {len(modules)} are not compiled"
    if sys.dont_write_bytecode:
        reason = "this process writes no compiled files (PYTHONDONTWRITEBYTECODE)"
    elif not all(_can_be_written(Path(cache_from_source(str(module))).parent) for module in missing):
        reason = "compiled files cannot be written here"
    else:
        return ok(_NAME, f"{seen} yet: the first process that imports one does it")
    # Folders that are links have to be named: compileall does not follow them.
    folders = [package, *(path for path in sorted(package.iterdir()) if path.is_symlink() and path.is_dir())]
    command = shlex.join([sys.executable, "-m", "compileall", "-q", *map(str, folders)])
    return warn(_NAME, f"{seen}, and {reason}", f"each process compiles what it imports as it starts: {command}")


def _modules(package: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(package, followlinks=True):
        yield from (Path(folder, name) for name in names if name.endswith(".py"))


def _is_compiled(module: Path) -> bool:
    """Return whether there is a compiled file, of the module as it is now."""
    try:
        with open(cache_from_source(str(module)), "rb") as file:
            _, flags, modified, size = struct.unpack("<4sIII", file.read(16))
        found = module.stat()
    except (OSError, struct.error):
        return False
    # Python compares another kind of file, with a digest, itself.
    return flags != 0 or (modified, size) == (int(found.st_mtime) & 0xFFFFFFFF, found.st_size & 0xFFFFFFFF)


def _can_be_written(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)
