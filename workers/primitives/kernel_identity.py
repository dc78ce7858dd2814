"""The identity of a kernel: everything that its binary depends on, which is less than what its primitive depends on.

Primitives of many sizes have the same kernels, because kernels take sizes as arguments. An entry names its kernels, so that
a process which has them makes the next primitive without a compiler.
"""

from __future__ import annotations

from functools import lru_cache

from poolrt.cachestore import Key
from poolrt.cachestore.digests import sha256

from ..engines.target import Target
from ..kernels.spec import KernelSpec
from .key import SCHEMA
from .sources import generator_digest
from .toolchain import toolchain


def kernel_identity(spec: KernelSpec, target: Target) -> bytes:
    """Return 32 bytes that two kernels share if and only if their generator, parameters, sources, target and toolchain are equal.

    The number of threads is left out: a kernel reads which part of the work is one thread's from its arguments.
    """
    # By the canonical form: parameters that compare equal, such as 0.0 and -0.0, can make different code.
    return sha256(_circumstances(spec.generator, target.on_threads(0)) + Key(spec.fields()).canonical).digest()


@lru_cache(maxsize=1024)
def _circumstances(generator: str, target: Target) -> bytes:
    """Return what kernels of a generator have in common on a target, packed in a form that has its length."""
    kind = target.engine_kind
    own = {"source": generator_digest(kind, generator), "target": target.fields(), "toolchain": toolchain(kind)}
    return Key({"schema": SCHEMA, **own}).canonical
