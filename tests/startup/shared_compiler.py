"""A compiler of kernels that takes from a folder what another process of the same run of tests has compiled."""

from __future__ import annotations

import fcntl
import functools
import os
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final, TextIO

from poolrt.cachestore import Key
from poolrt.workers.engines.target import Target
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.primitives.sources import generator_digest

#: The variable that names the folder; processes that tests start inherit it. Without it, nothing is shared.
FOLDER: Final = "KERNELS_OF_TESTS"
#: Seconds to wait for another process that compiles the same kernel; a test may have stopped that process.
WAIT_S: Final = 10.0
Compiler = Callable[[KernelSpec, Target], bytes]


def sharing(compile_kernel: Compiler, machine: str = "") -> Compiler:
    """Return a compiler that compiles only what no process of this run has compiled; ``compile_kernel`` may be one.

    ``machine`` names what its code is for beside the target, if anything.
    """
    compile_kernel = getattr(compile_kernel, "__wrapped__", compile_kernel)

    @functools.wraps(compile_kernel)
    def shared(spec: KernelSpec, target: Target) -> bytes:
        """Return a kernel's binary, compiled by the first process that asks for it. Raises the compiler's error."""
        if not (folder := os.environ.get(FOLDER)):
            return compile_kernel(spec, target)
        # All of an OpenCL device may matter to its compiler, of a processor only the instructions.
        device = target.instructions if target.engine_kind == "cpu" else repr(target.on_threads(0))
        sources = generator_digest(target.engine_kind, spec.generator)
        place = Path(
            folder, sha256(Key(spec.fields()).canonical + f"{device} {machine} {sources}".encode()).hexdigest()
        )
        with place.with_suffix(".lock").open("w") as lock:
            if not _locked(lock):
                return compile_kernel(spec, target)
            if place.exists():
                return place.read_bytes()
            binary = compile_kernel(spec, target)
            unfinished = place.with_suffix(".new")
            unfinished.write_bytes(binary)
            unfinished.rename(place)
        return binary

    return shared


def _locked(lock: TextIO) -> bool:
    """Return whether a file could be locked in time."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        else:
            return True
    return False
