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
    return _versions(os.path.dirname(next(iter(spec.submodule_search_locations)))).get(package, "unknown")


@lru_cache(maxsize=8)
def _versions(root: str) -> dict[str, str]:
    """Return the versions of the distributions in a folder, from one look at it."""
    found: dict[str, str] = {}
    for folder in os.listdir(root):
        if folder.endswith(".dist-info"):
            name, _, version = folder.removesuffix(".dist-info").partition("-")
            found.setdefault(name, version)
    return found
