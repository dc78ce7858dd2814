"""Pay the compiler's start-up once, in the process that creators are forked from."""

from __future__ import annotations

from ...engines.target import host_isa
from .compiler import types
from .compiler.codegen import compile_function
from .vec import vload, vstore


def warm_up() -> None:
    """Import the compiler and compile a small kernel for this host's ISA level."""
    compile_function("copy", _copy, types.void(*[types.int64] * 4), host_isa())


def _copy(begin: int, end: int, src: int, dst: int) -> None:
    """Copy vectors."""
    for index in range(begin, end):
        vstore(dst + index * 64, vload(src + index * 64))
