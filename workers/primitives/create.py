"""Create the entry of a primitive: compile its kernels. Runs in creator processes; the only way into a compiler."""

from __future__ import annotations

from importlib import import_module

from .entry import pack_entry
from .primitive_desc import PrimitiveDesc
from .program import KernelSpec


class PrimitiveCreator:
    """Compiles primitives; keeps what it has compiled, so that primitives sharing a kernel share the compilation."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[KernelSpec, str], bytes] = {}

    def create(self, pd: PrimitiveDesc) -> bytes:
        """Return the entry of a primitive descriptor. Raises the compiler's error where a kernel does not compile."""
        program = pd.program()
        if pd.target.engine_kind == "cpu":
            binaries = [self._native(spec, pd.target.isa) for spec in program.kernels]
            return pack_entry(pd.impl_name(), "cpu", program, binaries, [])
        build = import_module("..kernels.opencl.build", __package__)
        binaries, names = build.compile_program(program, pd.target)
        return pack_entry(pd.impl_name(), pd.target.engine_kind, program, binaries, names)

    def _native(self, spec: KernelSpec, isa: str) -> bytes:
        found = self._compiled.get((spec, isa))
        if found is None:
            codegen = import_module("..kernels.native.codegen", __package__)
            found = self._compiled[spec, isa] = codegen.compile_kernel(spec, isa)
        return found
