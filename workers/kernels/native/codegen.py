"""Compile a kernel spec into a position-independent native object for an ISA level.

Guarantees: the object is made for the level's processor, never for the host (a v3 object holds no 512-bit register); it
exports exactly `poolrt_entry`; it leaves undefined only symbols that `object_loader` resolves; equal specs give equal
bytes. A kernel that would need Python or Numba's runtime (arrays allocated, exceptions raised) is refused.

An argument is an int64 or a float64. The last may be a ``voidptr``: it is given the place in memory of the arguments from
its own slot on, so that a kernel can take any number of them.

Numba's own target follows the host and keeps the host's features even when another processor is named, so each level
has a target context with its own LLVM target machine. It replaces the process's CPU target only while a kernel is
compiled, under Numba's compiler lock, because functions that a kernel calls find their target through that singleton.
Such a function has one list of what was compiled for it, whatever the target; so each level has functions of its own.
"""

from __future__ import annotations

import gc
import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any, Final
from weakref import WeakKeyDictionary

import llvmlite.binding as llvm
from numba.core import callconv, cgutils, codegen, compiler, cpu, registry, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from numba.core.runtime.nrt import rtsys
from numba.core.typing.context import Context
from numba.core.typing.templates import Signature

from ...engines.object_loader import ALLOWED_SYMBOLS, ENTRY_SYMBOL
from ...engines.raised import describe_raised
from ...engines.target import EXTENSIONS, ISA_LEVELS
from ..spec import KernelSpec

_DECLARATION: Final = re.compile(r"^declare [^@]*@(\"[^\"]+\"|[\w.$-]+)\(", re.MULTILINE)
#: A generator is a module here, or in one folder below.
_GENERATOR: Final = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?")
_GLOBAL: Final = re.compile(r"^@(\"[^\"]+\"|[\w.$-]+) = external ", re.MULTILINE)


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
    name = f"{spec.generator}({', '.join(f'{k}={v!r}' for k, v in spec.params)})"
    level, *extensions = isa.split("+")
    if level not in ISA_LEVELS or not set(extensions) <= EXTENSIONS.keys():
        known = f"{', '.join(ISA_LEVELS)}, each with + and {', '.join(EXTENSIONS)}"
        raise CompileError(name, f"unknown ISA level {isa!r}; known: {known}")
    if not _GENERATOR.fullmatch(spec.generator):
        raise CompileError(name, f"{spec.generator!r} is no generator's name")
    try:
        generator = import_module(f".{spec.generator}", __package__)
        function, signature = generator.make(isa, **dict(spec.params))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise CompileError(name, "its generator failed", f"{type(error).__name__}: {error}") from error
    binary: bytes = compile_function(name, function, signature, isa)
    return binary


@global_compiler_lock
def compile_function(name: str, function: Callable[..., None], signature: Signature, isa: str) -> bytes:
    """Compile one Python function without a result, of arguments as said above. Raises CompileError."""
    for argument in signature.args[:-1] if signature.args[-1] == types.voidptr else signature.args:
        if argument not in (types.int64, types.float64):
            raise CompileError(name, f"arguments are int64 or float64, not {argument}")
    target = _level(isa)
    with _as_cpu_target(target), _without_collections():
        try:
            result = compiler.compile_extra(
                target.typing_context, target, function, signature.args, types.void, _flags(), {}
            )
        except (NumbaError, TypeError, ValueError, LookupError, RuntimeError) as error:
            raise CompileError(name, "Numba rejects it", f"{type(error).__name__}: {error}") from error
    symbol = result.fndesc.llvm_func_name
    return _emit(name, result.library._final_module.clone(), symbol, target._internal_codegen._tm)


class _LevelCodegen(codegen.AOTCPUCodegen):
    """Numba's ahead-of-time code generator for one named processor with exactly that processor's features, and more named."""

    def __init__(self, isa: str) -> None:
        level, *extensions = isa.split("+")
        self._more = ",".join(f"+{EXTENSIONS[name]}" for name in extensions)
        self._isa = level
        super().__init__(f"poolrt.{isa}", cpu_name=level)

    def _customize_tm_features(self) -> str:
        return self._more

    def _create_empty_module(self, name: str) -> Any:
        """Return a module that code generators ask for its level: see `vec.isa_of`."""
        module = super()._create_empty_module(name)
        module.poolrt_isa = self._isa
        return module


class _LevelTyping(Context):
    """A typing context that takes a level's own dispatcher for each one that a kernel, or what it calls, names.

    The named one may have been compiled for another level or for this process, and would not be compiled again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._own: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def resolve_value_type(self, val: Any) -> Any:
        """Return the type of a constant."""
        if isinstance(val, Dispatcher) and val.typingctx is not self:
            own = self._own.get(val)
            if own is None:
                named: Any = val
                pipeline = named._compiler.pipeline_class
                own = type(named)(named.py_func, named.locals, named.targetoptions, pipeline_class=pipeline)
                self._own[val] = own
            val = own
        return super().resolve_value_type(val)


class _LevelCallConv(callconv.CPUCallConv):
    """Numba's calling convention, in which a function that raises leaves the address of a text, not of a pickle."""

    def set_static_user_exc(
        self, builder: Any, exc: Any, exc_args: Any = None, loc: Any = None, func_name: Any = None
    ) -> None:
        """Write the address of an exception's description; the place in the source is left out, as it depends on the host."""
        if exc is None:  # `raise` alone
            exc, exc_args = RuntimeError, ("No active exception to reraise",)
        if not (isinstance(exc, type) and issubclass(exc, BaseException)):
            raise TypeError(f"a kernel raises exception classes, not {exc!r}")
        text = describe_raised(exc, exc_args or ()).text().encode() + b"\0"
        name = f".const.raised.{hashlib.sha256(text).hexdigest()}"
        constant = self.context.insert_unique_const(builder.module, name, cgutils.make_bytearray(text))
        place = self._get_excinfo_argument(builder.function)
        builder.store(builder.bitcast(constant, place.type.pointee), place)


class _LevelContext(cpu.CPUContext):
    """A CPU target context that lowers for an ISA level and never makes executable code in this process."""

    def __init__(self, typing_context: Context, isa: str) -> None:
        self._isa = isa
        super().__init__(typing_context, "cpu")

    def init(self) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.is32bit = False
        self._internal_codegen = _LevelCodegen(self._isa)

    @property
    def call_conv(self) -> callconv.CPUCallConv:  # pyright: ignore[reportIncompatibleVariableOverride]
        return _LevelCallConv(self)

    def post_lowering(self, mod: Any, library: Any) -> None:
        """Link nothing: a kernel that needs Numba's runtime is refused by its undefined symbols."""

    def create_cpython_wrapper(self, *args: Any, **options: Any) -> None:
        """Make none, for the functions that a kernel calls either."""

    def create_cfunc_wrapper(self, *args: Any, **options: Any) -> None:
        """Make none, for the functions that a kernel calls either."""

    def get_executable(self, library: Any, fndesc: Any, env: Any) -> object:
        """Optimise a function and return a token that names it to its callers; nothing is loaded.

        Numba's dispatchers accept only a built-in function; the method of a new list is a unique one.
        """
        library.finalize()
        return [].append


@lru_cache(maxsize=2 * len(ISA_LEVELS))
def _level(isa: str) -> _LevelContext:
    """Return the context of a level, made once a process, as Numba keeps its own."""
    llvm.initialize_native_asmparser()  # for system calls, which are written in assembly
    # The runtime must be set up by a context that can run code, whichever context asks first.
    rtsys.initialize(registry.cpu_target.target_context)
    context = _LevelContext(_LevelTyping(), isa)
    with _as_cpu_target(context):
        context.refresh()
    return context


@contextmanager
def _as_cpu_target(context: _LevelContext) -> Iterator[None]:
    """Let functions called by a kernel compile for ``context``: they ask the singleton for its two cached contexts."""
    target = registry.cpu_target
    saved = target.typing_context, target.target_context
    names = "_toplevel_typing_context", "_toplevel_target_context"
    try:
        vars(target).update(zip(names, (context.typing_context, context), strict=True))
        yield
    finally:
        vars(target).update(zip(names, saved, strict=True))


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collect no garbage while a kernel is compiled: that would take a tenth of the time and find next to nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _flags() -> compiler.Flags:
    flags: Any = compiler.Flags()
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.enable_pyobject = False
    flags.nrt = False
    flags.release_gil = True
    flags.error_model = "numpy"
    return flags


def _emit(name: str, module: llvm.ModuleRef, symbol: str, machine: llvm.TargetMachine) -> bytes:
    """Add the packed entry, hide everything else, drop unused code and emit the object."""
    kernel = module.get_function(symbol)
    kinds = [str(argument.type) for argument in kernel.arguments]
    loads, passed = [], [f"{kinds[0]} %ret", f"{kinds[1]} %exc"]
    for slot, kind in enumerate(kinds[2:]):
        place = f"%p{slot}"
        loads.append(f"  {place} = getelementptr i64, ptr %blob, i64 {slot}")
        if kind not in ("ptr", "i8*"):
            loads.append(f"  %v{slot} = load {kind}, ptr {place}")
            place = f"%v{slot}"
        passed.append(f"{kind} {place}")
    body = "\n".join(loads)
    entry = llvm.parse_assembly(
        'source_filename = "poolrt"\n'
        f'target triple = "{module.triple}"\n'
        f'target datalayout = "{module.data_layout}"\n'
        f'declare i32 @"{symbol}"({", ".join(kinds)})\n'
        f"define i32 @{ENTRY_SYMBOL}(ptr %ret, ptr %exc, ptr %blob) {{\n{body}\n"
        f'  %status = tail call i32 @"{symbol}"({", ".join(passed)})\n  ret i32 %status\n}}\n'
    )
    entry.link_in(module)
    module = entry
    for function in module.functions:
        if not function.is_declaration:
            function.add_function_attribute("nounwind")  # no unwind tables: nothing unwinds through a kernel
            if function.name != ENTRY_SYMBOL:
                function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_strip_dead_prototype_pass()
    passes.add_strip_symbols_pass()  # Numba's names carry counters of this process
    passes.run(module, builder)
    _refuse_undefined(name, str(module))
    emitted: bytes = machine.emit_object(module)
    return emitted


def _refuse_undefined(name: str, text: str) -> None:
    declared = [match.strip('"') for pattern in (_DECLARATION, _GLOBAL) for match in pattern.findall(text)]
    missing = sorted(s for s in declared if not s.startswith("llvm.") and s not in ALLOWED_SYMBOLS)
    if missing:
        raise CompileError(name, f"it needs {', '.join(missing)}: a kernel may call only the C and math library", "")
