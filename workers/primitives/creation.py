"""Create the entry of a primitive: compile its kernels. Runs in creator processes; the only way into a compiler."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from poolrt.cachestore.lru import Lru

from ..engines.target import Target
from ..implementations.primitive_desc import PrimitiveDesc
from ..kernels.spec import KernelSpec
from .derivation import identities_of, pack_program
from .entry import MalformedEntry, parse_entry
from .sources import check_kernel

#: Kernels that a creator keeps.
_KEPT: Final = 1024


class PrimitiveCreator:
    """Compiles primitives; keeps the kernels that it compiled last, so that primitives share them.

    Threads may share a creator; two that need the same kernel at once both compile it.
    """

    def __init__(self, compiler: Callable[[KernelSpec, Target], bytes] | None = None) -> None:
        self._compile = compiler or compile_kernel
        self._compiled: Lru[bytes, bytes] = Lru(_KEPT)

    def create(self, pd: PrimitiveDesc) -> bytes:
        """Return the entry of a primitive descriptor; its nested primitives have entries of their own, not made here.

        Raises the compiler's error if a kernel does not compile, LookupError if its source is not in the key, and
        MalformedEntry, before anything is compiled, if no process could parse the entry.
        """
        program = pd.program()
        for spec in program.kernels:
            check_kernel(pd.target.engine_kind, pd.op.kind, pd.implementation, spec.generator)
        identities = identities_of(pd, program)
        try:
            parse_entry(pack_program(pd, program, identities, [b""] * len(identities)))
        except OverflowError as error:  # msgpack's, for integers beyond 64 bits
            raise MalformedEntry(f"{pd.impl_name()}: {error}") from error
        kernels = zip(program.kernels, identities, strict=True)
        binaries = [self._binary(spec, identity, pd.target) for spec, identity in kernels]
        return pack_program(pd, program, identities, binaries)

    def _binary(self, spec: KernelSpec, identity: bytes, target: Target) -> bytes:
        found = self._compiled.get(identity)
        if found is None:
            found = self._compile(spec, target)
            self._compiled.put(identity, found)
        return found


def compile_kernel(spec: KernelSpec, target: Target) -> bytes:
    """Return the binary of a kernel for an engine's target. Raises the compiler's error."""
    binary: bytes
    if spec.generator == "given":
        given = import_module("..kernels.native.given", __package__)
        binary = given.given_object(dict(spec.params)["code"])
    elif target.engine_kind == "cpu":
        codegen = import_module("..kernels.native.compiler.codegen", __package__)
        binary = codegen.compile_kernel(spec, target.instructions)
    else:
        build = import_module("..kernels.opencl.build", __package__)
        binary = build.compile_kernel(spec, target)
    return binary
