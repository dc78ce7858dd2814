"""Pay the compiler's start-up once, in the process that creators are forked from."""

from __future__ import annotations

from numba.core import types

from ...engines.target import host_isa
from .codegen import compile_function


def warm_up() -> None:
    """Import the compiler and compile a kernel that does nothing, for this host's ISA level."""
    compile_function("nothing", _nothing, types.void(types.int64, types.int64), host_isa())


def _nothing(begin: int, end: int) -> None:
    """Do nothing."""
