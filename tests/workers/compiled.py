"""Kernels of tests, each compiled once in all processes of a run: they share a folder that the first process makes."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

from poolrt.cachestore import CacheStore, Key
from poolrt.workers.engines.object_loader import NativeKernel, load_object
from poolrt.workers.engines.target import Target, cpu_target
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.primitives.creation import PrimitiveCreator, compile_kernel
from poolrt.workers.primitives.provider import PrimitiveProvider

#: The variable that names the folder; processes that tests start inherit it. Without it, nothing is shared.
FOLDER: Final = "KERNELS_OF_TESTS"


@contextmanager
def shared_kernels() -> Iterator[None]:
    """Make the folder for the processes that are started in the block."""
    with tempfile.TemporaryDirectory(prefix="tests-kernels-") as folder:
        os.environ[FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER]


def compiled(spec: KernelSpec, target: Target) -> bytes:
    """Return a kernel's binary, compiled by the first process that asks for it. Raises the compiler's error."""
    if not (folder := os.environ.get(FOLDER)):
        return compile_kernel(spec, target)
    # All of an OpenCL device may matter to its compiler, of a processor only the instructions.
    machine = target.instructions if target.engine_kind == "cpu" else repr(target.on_threads(0))
    place = Path(folder, sha256(Key(spec.fields()).canonical + machine.encode()).hexdigest())
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.exists():
            return place.read_bytes()
        binary = compile_kernel(spec, target)
        unfinished = place.with_suffix(".new")
        unfinished.write_bytes(binary)
        unfinished.rename(place)
    return binary


def creator() -> PrimitiveCreator:
    """Return a creator that compiles only what no process of this run has compiled."""
    return PrimitiveCreator(compiled)


def cache(capacity: int, store: CacheStore) -> PrimitiveProvider:
    """Return a cache in front of a store that compiles only what no process of this run has compiled."""
    return PrimitiveProvider(capacity, store, creator().create)


def region_loop(*parts: str) -> tuple[NativeKernel, ...]:
    """Return kernels of native pools, loaded."""
    return tuple(load_object(compiled(KernelSpec.of("region_loop", part=part), cpu_target())) for part in parts)
