"""Compile a function of a user with Numba into a position-independent native object for an ISA level.

Guarantees: as of `codegen`. A function that would need Python or Numba's runtime (arrays allocated) is refused; one that raises
returns an exception's description. Arguments are those of `codegen`, with Numba's types.

Numba's own target follows the host and keeps the host's features even when another processor is named, so each level
has a target context with its own LLVM target machine. It replaces the process's CPU target only while a function is
compiled, under Numba's compiler lock, because functions that it calls find their target through that singleton.
Such a function has one list of what was compiled for it, whatever the target; so each level has functions of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import llvmlite.binding as llvm
from numba.core import callconv, cgutils, codegen, compiler, cpu, registry, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from numba.core.runtime.nrt import rtsys
from numba.core.typing.context import Context
from numba.core.typing.templates import Signature

from ....engines.object_loader import ENTRY_SYMBOL
from ....engines.raised import describe_raised
from ....engines.target import EXTENSIONS, ISA_LEVELS
from .codegen import CompileError, emit_object, without_collections


@global_compiler_lock
def compile_function(name: str, function: Callable[..., None], signature: Signature, isa: str) -> bytes:
    """Compile one Python function without a result, of arguments as said above. Raises CompileError."""
    for argument in signature.args[:-1] if signature.args[-1] == types.voidptr else signature.args:
        if argument not in (types.int64, types.float64):
            raise CompileError(name, f"arguments are int64 or float64, not {argument}")
    target = _level(isa)
    with _as_cpu_target(target), without_collections():
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
        super().__init__(f"poolrt.{isa}", cpu_name=level)

    def _customize_tm_features(self) -> str:
        return self._more


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
    return emit_object(name, module, machine)  # Numba's names, which it strips, carry counters of this process
