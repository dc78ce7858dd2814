"""The versions of what generates code, read from metadata folders, so that no compiler is imported."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec
from typing import Final

#: Distributions whose version can change the code they generate, by engine kind.
_TOOLCHAIN: Final = {"cpu": ("numba", "llvmlite", "numpy"), "opencl": ()}


@lru_cache(maxsize=8)
def toolchain(engine_kind: str) -> dict[str, str]:
    """Return the versions of the packages that generate code for an engine kind, without importing them."""
    return {name: _version(name) for name in _TOOLCHAIN[engine_kind]}


def _version(package: str) -> str:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return "absent"
    root = os.path.dirname(next(iter(spec.submodule_search_locations)))
    for folder in os.listdir(root):
        if folder.startswith(f"{package}-") and folder.endswith(".dist-info"):
            return folder.removesuffix(".dist-info").removeprefix(f"{package}-")
    return "unknown"
