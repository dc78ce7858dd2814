"""The key of a primitive: everything that its compiled form depends on, as named fields, and nothing else.

Left out on purpose: the engine's index and the host's name (an entry serves every device of one identity), process and
thread ids, addresses, and names of tensors. Versions are read from metadata folders, so that no compiler is imported.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from importlib.util import find_spec
from typing import Final

from poolrt.cachestore import Key

from ..implementations.primitive_desc import PrimitiveDesc

SCHEMA: Final = 1
#: Distributions whose version can change the code they generate, by engine kind.
_TOOLCHAIN: Final = {"cpu": ("numba", "llvmlite", "numpy"), "opencl": ()}
#: What kernels are generated from, and what describes the programs: folders beside this one, and how files there end.
_SOURCES: Final = {
    "cpu": (
        ("desc", ".py"),
        ("desc/operations", ".py"),
        ("implementations", ".py"),
        ("implementations/native", ".py"),
        ("implementations/nested", ".py"),
        ("implementations/reference", ".py"),
        ("kernels", ".py"),
        ("kernels/native", ".py"),
        ("kernels/native/reference", ".py"),
    ),
    "opencl": (
        ("desc", ".py"),
        ("desc/operations", ".py"),
        ("implementations", ".py"),
        ("implementations/native", ".py"),
        ("implementations/nested", ".py"),
        ("implementations/opencl", ".py"),
        ("implementations/reference", ".py"),
        ("kernels", ".py"),
        ("kernels/opencl", ".cl"),
        ("kernels/opencl", ".py"),
        ("kernels/opencl/reference", ".cl"),
    ),
}


def primitive_key(pd: PrimitiveDesc) -> Key:
    """Return the key of a primitive descriptor, which keeps it."""
    key = pd.cached_key
    if key is None:
        key = _key(pd)
        object.__setattr__(pd, "cached_key", key)
    return key


def _key(pd: PrimitiveDesc) -> Key:
    kind = pd.target.engine_kind
    return Key(
        {
            "schema": SCHEMA,
            "primitive": pd.op.kind,
            "operation": pd.op.fields(),
            "attributes": pd.attr.fields(),
            "hint": tuple((arg, desc.fields()) for arg, desc in pd.hint),
            "implementation": pd.implementation.name,
            "source": source_digest(kind),
            "target": pd.target.fields(),
            "toolchain": toolchain(kind),
        }
    )


@lru_cache(maxsize=8)
def source_digest(engine_kind: str) -> str:
    """Return the SHA-256 over all kernel sources of an engine kind and the modules that describe programs.

    The whole folder is taken rather than one file: it contains the transitive closure of what a kernel is generated from.
    """
    # Not by pathlib, whose import takes longer than all of this.
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    names = sorted(
        f"{folder}/{name}"
        for folder, ending in _SOURCES[engine_kind]
        for name in os.listdir(os.path.join(root, folder))
        if name.endswith(ending)
    )
    digest = hashlib.sha256()
    for name in names:
        with open(os.path.join(root, name), "rb") as file:
            content = file.read()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


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
