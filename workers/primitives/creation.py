"""Create the entry of a primitive: compile its kernels. Runs in creator processes; the only way into a compiler."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from poolrt.cachestore import Key
from poolrt.cachestore.lru import Lru

from ..engines.target import Target
from ..implementations.cost_model import nanoseconds
from ..implementations.primitive_desc import PrimitiveDesc
from ..kernels.spec import KernelSpec
from .entry import MalformedEntry, pack_entry, parse_entry
from .key import primitive_key
from .sources import check_kernel

#: Kernels that a creator keeps.
_KEPT: Final = 1024


class PrimitiveCreator:
    """Compiles primitives; keeps the kernels that it compiled last, so that primitives share them.

    Threads may share a creator; two that need the same kernel at once both compile it.
    """

    def __init__(self, compiler: Callable[[KernelSpec, Target], bytes] | None = None) -> None:
        self._compile = compiler or compile_kernel
        self._compiled: Lru[tuple[bytes, Target], bytes] = Lru(_KEPT)

    def create(self, pd: PrimitiveDesc) -> bytes:
        """Return the entry of a primitive descriptor; its nested primitives have entries of their own, not made here.

        Raises the compiler's error if a kernel does not compile, LookupError if its source is not in the key, and
        MalformedEntry, before anything is compiled, if no process could parse the entry.
        """
        program, kind = pd.program(), pd.target.engine_kind
        for spec in program.kernels:
            check_kernel(kind, pd.op.kind, pd.implementation, spec.generator)
        names = [spec.name for spec in program.kernels] if kind == "opencl" else []
        nested = [primitive_key(pd).canonical for pd in program.nested]

        def pack(binaries: list[bytes]) -> bytes:
            return pack_entry(pd.impl_name(), kind, program, binaries, names, nested, nanoseconds(pd))

        try:
            parse_entry(pack([b""] * len(program.kernels)))
        except OverflowError as error:  # msgpack's, for integers beyond 64 bits
            raise MalformedEntry(f"{pd.impl_name()}: {error}") from error
        return pack([self._binary(spec, pd.target) for spec in program.kernels])

    def _binary(self, spec: KernelSpec, target: Target) -> bytes:
        # By the canonical form: parameters that compare equal, such as 0.0 and -0.0, can make different code. Without the
        # threads: which part of the work is one thread's, a kernel reads from its arguments.
        known = Key(spec.fields()).canonical, target.on_threads(0)
        found = self._compiled.get(known)
        if found is None:
            found = self._compile(spec, target)
            self._compiled.put(known, found)
        return found


def compile_kernel(spec: KernelSpec, target: Target) -> bytes:
    """Return the binary of a kernel for an engine's target. Raises the compiler's error."""
    binary: bytes
    if spec.generator == "given":
        given = import_module("..kernels.native.given", __package__)
        binary = given.given_object(dict(spec.params)["code"])
    elif target.engine_kind == "cpu":
        codegen = import_module("..kernels.native.codegen", __package__)
        binary = codegen.compile_kernel(spec, target.instructions)
    else:
        build = import_module("..kernels.opencl.build", __package__)
        binary = build.compile_kernel(spec, target)
    return binary
