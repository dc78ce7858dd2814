"""Create the entry of a primitive: compile its kernels. Runs in creator processes; the only way into a compiler."""

from __future__ import annotations

from importlib import import_module

from ..engines.target import Target
from .entry import pack_entry
from .primitive_desc import PrimitiveDesc
from .program import KernelSpec


class PrimitiveCreator:
    """Compiles primitives; keeps what it has compiled, so that primitives sharing a kernel share the compilation."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[KernelSpec, Target], bytes] = {}

    def create(self, pd: PrimitiveDesc) -> bytes:
        """Return the entry of a primitive descriptor. Raises the compiler's error where a kernel does not compile."""
        program, kind = pd.program(), pd.target.engine_kind
        binaries = [self._binary(spec, pd.target) for spec in program.kernels]
        names = [spec.name for spec in program.kernels] if kind == "opencl" else []
        return pack_entry(pd.impl_name(), kind, program, binaries, names)

    def _binary(self, spec: KernelSpec, target: Target) -> bytes:
        found = self._compiled.get((spec, target))
        if found is None:
            found = self._compiled[spec, target] = _compile(spec, target)
        return found


def _compile(spec: KernelSpec, target: Target) -> bytes:
    binary: bytes
    if target.engine_kind == "cpu":
        codegen = import_module("..kernels.native.codegen", __package__)
        binary = codegen.compile_kernel(spec, target.instructions)
    else:
        build = import_module("..kernels.opencl.build", __package__)
        binary = build.compile_kernel(spec, target)
    return binary
