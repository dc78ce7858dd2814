"""A compiler of kernels for instructions that this host lacks, so that it runs them: only what LLVM does with their code differs.

LLVM takes vectors of 512 bits apart for narrower registers; `emulated_instructions` has what it does not. Instructions on tiles
are compiled as they are: `tile_emulator` executes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from poolrt.workers.engines.isa import cpu_flags, extensions_of
from poolrt.workers.engines.target import ISA_LEVELS, Target, host_isa
from poolrt.workers.kernels.spec import KernelSpec

from .tile_emulator import TILE_FLAGS

Compiler = Callable[[KernelSpec, Target], bytes]


def host_lacks(target: Target) -> bool:
    """Return whether this host cannot run code for a target of its engine kind."""
    return target.engine_kind == "cpu" and not {*target.instructions.split("+")} <= {*had(target.instructions)}


def for_this_host(compile_kernel: Compiler) -> Compiler:
    """Return a compiler that compiles for this host what is for a target that it lacks."""

    def compiled(spec: KernelSpec, target: Target) -> bytes:
        """Return a kernel's binary, which this host runs. Raises the compiler's error."""
        if spec.generator == "given" or not host_lacks(target):
            return compile_kernel(spec, target)
        from poolrt.workers.kernels.native.compiler.codegen import lower_kernel

        code = lower_kernel(spec, target.instructions)
        return _compile(f"{spec.generator} for {target.instructions}", code, target.instructions)

    return compiled


def function_for_this_host(name: str, function: Callable[..., None], signature: Any, instructions: str) -> bytes:
    """Return the object of one function for any instructions, which this host runs. Raises CompileError."""
    from poolrt.workers.kernels.native.compiler.codegen import lower_function

    return _compile(name, lower_function(name, function, signature, instructions), instructions)


def _compile(name: str, code: str, instructions: str) -> bytes:
    from poolrt.workers.kernels.native.compiler.codegen import compile_code

    from .emulated_instructions import emulated

    return compile_code(name, emulated(code, real_flags()), "+".join(had(instructions)))


def had(instructions: str) -> list[str]:
    """Return the level and the extensions among these instructions that this host has, or executes as if it had."""
    level, *extensions = instructions.split("+")
    order, flags = list(ISA_LEVELS), real_flags()
    had = min(level, host_isa(flags), key=order.index)
    known = (flags | TILE_FLAGS) & {*extensions_of(had)} | TILE_FLAGS
    return [had, *(name for name in extensions if name in known)]


def real_flags() -> frozenset[str]:
    """Return the features of this host, not those that it has in tests with the variable INSTRUCTIONS_OF_TESTS."""
    found: frozenset[str] = getattr(cpu_flags, "of_this_host", cpu_flags)()
    return found
