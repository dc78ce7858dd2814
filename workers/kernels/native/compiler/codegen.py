"""Compile a kernel spec into a position-independent native object for an ISA level.

Guarantees: the object is made for the level's processor, never for the host (a v3 object holds no 512-bit register); it
exports exactly `poolrt_entry`; it leaves undefined only symbols that `object_loader` resolves; equal specs give equal
bytes.

An argument is an int64 or a float64. The last may be a ``voidptr``: it is given the place in memory of the arguments from
its own slot on, so that a kernel can take any number of them.

Kernels of this package are written in the language of `language`. Functions of users are compiled by `numba_codegen`.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from types import FunctionType
from typing import Final, cast

import llvmlite.binding as llvm
import llvmlite.ir as ir

from ....engines.object_loader import ALLOWED_SYMBOLS, ENTRY_SYMBOL
from ....engines.target import EXTENSIONS, ISA_LEVELS
from ...spec import KernelSpec
from . import types
from .lowering import Lowering
from .operands import Refused
from .stack import align_stack

#: A generator is a module here, or in one folder below.
_GENERATOR: Final = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?")


class CompileError(Exception):
    """A kernel could not be compiled. Raised in the creator; ``log`` is the compiler's own message."""

    def __init__(self, kernel: str, reason: str, log: str = "") -> None:
        super().__init__(kernel, reason, log)
        self.kernel = kernel
        self.reason = reason
        self.log = log

    def __str__(self) -> str:
        return f"kernel {self.kernel}: {self.reason}" + (f"\n{self.log}" if self.log else "")


def compile_kernel(spec: KernelSpec, isa: str) -> bytes:
    """Return the ELF object of a kernel for an ISA level (with extensions: `Target.instructions`). Raises CompileError.

    It exports ``poolrt_entry``.
    """
    return compile_code(_name(spec), lower_kernel(spec, isa), isa)


def lower_kernel(spec: KernelSpec, isa: str) -> str:
    """Return the code of a kernel in LLVM's language, as it is before LLVM optimises it. Raises CompileError."""
    name = _name(spec)
    level, *extensions = isa.split("+")
    if level not in ISA_LEVELS or not set(extensions) <= EXTENSIONS.keys():
        known = f"{', '.join(ISA_LEVELS)}, each with + and {', '.join(EXTENSIONS)}"
        raise CompileError(name, f"unknown ISA level {isa!r}; known: {known}")
    if not _GENERATOR.fullmatch(spec.generator):
        raise CompileError(name, f"{spec.generator!r} is no generator's name")
    try:
        generator = import_module(f"..{spec.generator}", __package__)
        function, signature = generator.make(isa, **dict(spec.params))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise CompileError(name, "its generator failed", f"{type(error).__name__}: {error}") from error
    return lower_function(name, function, signature, isa)


def compile_function(name: str, function: Callable[..., None], signature: types.Signature, isa: str) -> bytes:
    """Compile one function without a result, of arguments as said above. Raises CompileError."""
    return compile_code(name, lower_function(name, function, signature, isa), isa)


def lower_function(name: str, function: Callable[..., None], signature: types.Signature, isa: str) -> str:
    """Return what `lower_kernel` does, of one function. Raises CompileError."""
    for argument in signature.args[:-1] if signature.args[-1] == types.voidptr else signature.args:
        if argument not in (types.int64, types.float64):
            raise CompileError(name, f"arguments are int64 or float64, not {argument}")
    machine, layout = target_machine(isa)
    module = ir.Module("poolrt")
    module.triple, module.data_layout = machine.triple, layout
    #: Code generators ask for it: see `vec.isa_of`.
    module.poolrt_isa = isa.partition("+")[0]
    with without_collections():
        try:
            kernel = Lowering(module).function(cast(FunctionType, function), signature.args)
        except (Refused, ValueError, TypeError, AttributeError, LookupError) as error:
            raise CompileError(name, "it cannot be lowered", f"{type(error).__name__}: {error}") from error
        if kernel.results:
            raise CompileError(name, "it returns a value")
        _add_entry(module, kernel.function, signature)
        code = str(module)
        _take_apart(module)
    return code


def compile_code(name: str, code: str, isa: str) -> bytes:
    """Return the ELF object of code in LLVM's language, optimised for an ISA level. Raises CompileError."""
    machine, _ = target_machine(isa)
    with without_collections():
        lowered = llvm.parse_assembly(code)
    lowered.verify()
    _optimise(lowered, machine)
    return emit_object(name, lowered, machine)


@lru_cache(maxsize=2 * len(ISA_LEVELS))
def target_machine(isa: str) -> tuple[llvm.TargetMachine, str]:
    """Return LLVM's machine for a level with exactly its features and the named extensions', and the layout of its data."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # for system calls, which are written in assembly
    level, *extensions = isa.split("+")
    features = ",".join(f"+{EXTENSIONS[name]}" for name in extensions)
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(cpu=level, features=features, opt=3, reloc="pic", codemodel="default")
    return machine, str(machine.target_data)


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage while a kernel is lowered: that would take a tenth of the time and find next to nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _name(spec: KernelSpec) -> str:
    return f"{spec.generator}({', '.join(f'{k}={v!r}' for k, v in spec.params)})"


def _add_entry(module: ir.Module, kernel: ir.Function, signature: types.Signature) -> None:
    """Add the function that the loader calls: it reads the packed arguments. It returns 0: kernels raise nothing."""
    pointer, status = ir.IntType(8).as_pointer(), ir.IntType(32)
    entry = ir.Function(module, ir.FunctionType(status, [pointer] * 3), ENTRY_SYMBOL)
    entry.attributes.add("nounwind")  # no unwind tables: nothing unwinds through a kernel
    align_stack(entry)
    kernel.attributes.add("alwaysinline")
    b = ir.IRBuilder(entry.append_basic_block())
    given = []
    for slot, kind in enumerate(signature.args):
        place = b.gep(entry.args[2], [ir.IntType(64)(8 * slot)])
        given.append(place if kind == types.voidptr else b.load(b.bitcast(place, kind.lowered.as_pointer()), align=8))
    b.call(kernel, given)
    b.ret(status(0))


def _take_apart(module: ir.Module) -> None:
    """Free a module's instructions at once. They refer to their blocks, so a collection of garbage would look at all."""
    for function in module.functions:
        for block in function.blocks:
            for instruction in block.instructions:
                instruction.parent = None
            block.instructions.clear()
            block.terminator = None


def _optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization, options.slp_vectorization = True, False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def emit_object(name: str, module: llvm.ModuleRef, machine: llvm.TargetMachine) -> bytes:
    """Drop what is not used, refuse symbols that the loader does not resolve, and emit the object."""
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_strip_dead_prototype_pass()
    passes.add_strip_symbols_pass()
    passes.run(module, builder)
    _refuse_undefined(name, module)
    emitted: bytes = machine.emit_object(module)
    return emitted


def _refuse_undefined(name: str, module: llvm.ModuleRef) -> None:
    declared = [each.name for each in (*module.functions, *module.global_variables) if each.is_declaration]
    missing = sorted(s for s in declared if not s.startswith("llvm.") and s not in ALLOWED_SYMBOLS)
    if missing:
        raise CompileError(name, f"it needs {', '.join(missing)}: a kernel may call only the C and math library", "")
