"""Kernels of tests, each compiled once in all processes of a run: they share a folder that make or the first process makes.

Processes that tests start share it, too: `tests/startup/` is in their PYTHONPATH. A test without the variable `FOLDER` compiles.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from poolrt.cachestore import CacheStore
from poolrt.workers.engines.object_loader import NativeKernel, load_object
from poolrt.workers.engines.target import Target, cpu_target, host_isa
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.primitives.creation import PrimitiveCreator, compile_kernel
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.startup.shared_compiler import FOLDER, sharing
from tests.workers.kernels.native.lacking_instructions import for_this_host, host_lacks

STARTUP: Final = str(Path(__file__).resolve().parents[1] / "startup")
_compile: Final = getattr(compile_kernel, "__wrapped__", compile_kernel)
_shared: Final = sharing(_compile)
_shared_for_this_host: Final = sharing(for_this_host(_compile), "compiled for another host")


def compiled(spec: KernelSpec, target: Target) -> bytes:
    """Return a kernel's binary, which this host runs, compiled by the first process that asks. Raises the compiler's error."""
    return (_shared_for_this_host if host_lacks(target) else _shared)(spec, target)


@contextmanager
def shared_kernels() -> Iterator[None]:
    """Make the folder for the processes that are started in the block, unless there is one already, as in `make test`."""
    with ExitStack() as stack:
        if not os.environ.get(FOLDER):
            _set(stack, FOLDER, stack.enter_context(tempfile.TemporaryDirectory(prefix="tests-kernels-")))
        _set(stack, "PYTHONPATH", os.pathsep.join(filter(None, (STARTUP, os.environ.get("PYTHONPATH")))))
        yield


def _set(stack: ExitStack, name: str, value: str) -> None:
    """Set an environment variable until the stack ends."""
    before = os.environ.get(name)
    stack.callback(_restore, name, before)
    os.environ[name] = value


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def creator() -> PrimitiveCreator:
    """Return a creator that compiles only what no process of this run has compiled."""
    return PrimitiveCreator(compiled)


def cache(capacity: int, store: CacheStore) -> PrimitiveProvider:
    """Return a cache in front of a store that compiles only what no process of this run has compiled."""
    return PrimitiveProvider(capacity, store, creator().create)


def region_loop(*parts: str) -> tuple[NativeKernel, ...]:
    """Return kernels of native pools, loaded; as in a pool, without the extensions that they do not use."""
    target = cpu_target(host_isa())
    return tuple(load_object(compiled(KernelSpec.of("region_loop", part=part), target)) for part in parts)


def ring_end(part: str) -> NativeKernel:
    """Return a kernel of the ends of rings, loaded."""
    return load_object(compiled(KernelSpec.of("ring_ends", part=part), cpu_target(host_isa())))
