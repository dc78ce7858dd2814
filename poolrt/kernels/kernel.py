"""A kernel: a Python function with an explicit signature, as a native object that a warm process maps without a compiler.

Guarantees: one process compiles a kernel for all that have the function with all that it reaches, the signature and the
ISA level. Arguments are checked before machine code sees them. A call releases the GIL.
"""

from __future__ import annotations

import ctypes
import operator
import os
import struct
import sys
from _thread import allocate_lock
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import update_wrapper
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from poolrt.cachestore.errors import CreationFailed, StoreError
from poolrt.cachestore.forked_locks import freed_in_children
from poolrt.cachestore.key import Key
from poolrt.numba.fingerprint import Fingerprint
from poolrt.numba.process_store import find_on_node, process_store
from poolrt.workers.engines import object_loader
from poolrt.workers.engines.isa import chosen_instructions
from poolrt.workers.engines.object_loader import ObjectError, load_object
from poolrt.workers.primitives.toolchain import toolchain

from .counts import kernel_counts
from .signature import Argument, parse_signature

if TYPE_CHECKING:
    from poolrt.graph.user_kernels import NativeKernel

#: Raise it when objects take their arguments, or describe exceptions, in another form.
SCHEMA: Final = 2
_OPTIONS: Final = ("fastmath",)
#: Flags of code, and what a function with them has that a kernel cannot have. A generator is refused by the compiler.
_UNUSUAL: Final = ((0x04, "*arguments"), (0x08, "**arguments"), (0x280, "async or await"))
#: Whether the calling code is within the pickle of another kernel.
_within_pickle: Final[ContextVar[bool]] = ContextVar("poolrt.kernels.within_pickle", default=False)


class Kernel:
    """A callable kernel. Any number of threads may call it; the first call finds or creates its object.

    ``name``, ``signature`` and ``arguments`` describe it; ``key`` identifies its object, ``binary`` returns that.
    """

    def __init__(self, function: FunctionType, arguments: tuple[Argument, ...], options: dict[str, Any]) -> None:
        code = function.__code__
        unusual = [name for flag, name in _UNUSUAL if code.co_flags & flag]
        if unusual or code.co_kwonlyargcount:
            found = unusual[0] if unusual else "arguments by name only"
            raise TypeError(
                f"kernel {function.__qualname__} has {found}; expect a plain function of {len(arguments)} arguments"
            )
        if code.co_argcount != len(arguments):
            is_method = code.co_varnames[:1] == ("self",) and code.co_argcount == len(arguments) + 1
            raise TypeError(
                f"kernel {function.__qualname__} takes {code.co_argcount} arguments, its signature has {len(arguments)}"
                + ("; a kernel is no method: write it without self" if is_method else "")
            )
        update_wrapper(self, function)
        self.name = function.__qualname__
        self.function = function
        self.arguments = arguments
        self.signature = f"void({', '.join(map(str, arguments))})"
        self._names = code.co_varnames[: len(arguments)]
        self._options = options
        self._dtypes = [np.dtype(argument.dtype) for argument in arguments]
        self._packing = struct.Struct("".join(map(_format, arguments, self._dtypes)))
        # A fork may come while another thread compiles.
        self._lock = freed_in_children(allocate_lock())
        self._native: object_loader.NativeKernel | None = None

    def __repr__(self) -> str:
        return f"<poolrt.kernel {self.name} {self.signature}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Travel to another process by name, or by value if no module of that name has the kernel there."""
        if _has_name(self):
            return self.name
        if _within_pickle.get():
            return _make_blank, (), (self.function, self.arguments, self._options)
        import pickle

        import cloudpickle

        token = _within_pickle.set(True)
        try:
            return pickle.loads, (cloudpickle.dumps(self),)
        finally:
            _within_pickle.reset(token)

    def __setstate__(self, state: tuple[FunctionType, tuple[Argument, ...], dict[str, Any]]) -> None:
        Kernel.__init__(self, *state)

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Run the kernel on C-contiguous NumPy arrays and numbers, of exactly the signature's types.

        Raises TypeError for a wrong number or type of arguments, ValueError for an array that is not contiguous, aligned or
        writable, and a number out of range, and what `key` and `binary` raise. What the kernel raises has its own class, or is a
        RuntimeError if no module of the process has that class.
        """
        if named or len(arguments) != len(self.arguments):
            arguments = self._complete(arguments, named)
        native = self._native or self._load()
        packed: list[Any] = []
        for number, value in enumerate(arguments):
            if self.arguments[number].ndim:
                self._check_array(number, value)
                packed.append(value.__array_interface__["data"][0])
                packed += value.shape
            else:
                packed.append(self._number(number, value))
        result, error = ctypes.c_void_p(), ctypes.c_void_p()
        blob = self._packing.pack(*packed)
        status = native.function(ctypes.byref(result), ctypes.byref(error), blob)
        if status:
            from poolrt.workers.engines.raised import raised_at

            raised = raised_at(error.value)
            if raised is None:
                raise RuntimeError(f"kernel {self.name} raised an exception (status {status})")
            exception = raised.exception()
            exception.add_note(f"raised in kernel {self.name}")
            raise exception

    def key(self) -> Key:
        """Return the key of the kernel's object. Raises NotShareable for a constant without an identity."""
        fingerprint = Fingerprint(self.function, _foreign)
        return Key(
            {
                "schema": SCHEMA,
                "kind": "kernel",
                "function": fingerprint.name,
                "signature": self.signature,
                **fingerprint.own,
                "callees": fingerprint.callees,
                "options": self._options,
                "target": _target(),
                "toolchain": toolchain("cpu"),
                "settings": _settings(),
            }
        )

    def binary(self) -> bytes:
        """Return the kernel's native object, which exports `poolrt_entry`: found, or compiled for all.

        Raises CreationFailed with the compiler's message and log, and NotShareable.
        """
        return self._fetch(self.key(), self._create)

    def __poolrt_kernel__(self) -> NativeKernel:
        """Return the kernel for `Graph.call`, found, or compiled for all. Raises CreationFailed and NotShareable."""
        import msgpack

        from poolrt.graph.user_kernels import NativeKernel

        key = Key({**self.key().fields, "kind": "kernel of graphs"})
        name, parameters, ranged, isa, code = msgpack.unpackb(self._fetch(key, self._create_for_graphs))
        return NativeKernel(name, tuple(parameters), ranged, isa, code)

    def _fetch(self, key: Key, create: Callable[[], bytes]) -> bytes:
        code = self.function.__code__
        place = f"{code.co_filename}:{code.co_firstlineno}"
        found = find_on_node(key, place)
        if found is not None:
            kernel_counts().add("hits")
            return found
        try:
            outcome = process_store().fetch_or_create(key, create)
            process_store().note_asked(place, [key])
            kernel_counts().add(outcome.source if outcome.source in ("created", "waited") else "hits")
            return outcome.value
        except CreationFailed:
            kernel_counts().add("failed")
            raise
        except (StoreError, OSError) as error:
            from poolrt.numba.counters import counters

            kernel_counts().add("fallbacks")
            counters().fall_back(f"kernel {self.name}: {error}")
            return create()

    def _create_for_graphs(self) -> bytes:
        import msgpack

        from .compilation import compile_for_graphs  # imports Numba

        made = compile_for_graphs(self.function, self.signature, self._options, _isa())
        packed: bytes = msgpack.packb(made)
        return packed

    def _create(self) -> bytes:
        from .compilation import compile_user_kernel  # imports Numba

        return compile_user_kernel(self.function, self.arguments, self._options, _isa())

    def _load(self) -> object_loader.NativeKernel:
        with self._lock:
            if self._native is None:
                try:
                    self._native = load_object(self.binary())
                except ObjectError:
                    # Another version of poolrt has written it.
                    process_store().remove(self.key())
                    self._native = load_object(self.binary())
            return self._native

    def _complete(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments in order, with those given by name and defaults. Raises TypeError."""
        defaults = self.function.__defaults__ or ()
        found = dict(zip(self._names[len(self._names) - len(defaults) :], defaults, strict=True))
        found.update(zip(self._names, arguments, strict=False))
        for name, value in named.items():
            if name not in self._names:
                raise TypeError(f"kernel {self.name} has no argument {name!r}; it has {', '.join(self._names)}")
            if name in self._names[: len(arguments)]:
                raise TypeError(f"kernel {self.name} got two values for argument {name!r}")
            found[name] = value
        if len(arguments) > len(self._names) or len(found) < len(self._names):
            count = len(arguments) + len(named)
            missing = [name for name in self._names if name not in found]
            raise TypeError(
                f"kernel {self.name} takes {len(self._names)} arguments, got {count}"
                + (f"; missing: {', '.join(missing)}" if missing else "")
            )
        return tuple(found[name] for name in self._names)

    def _check_array(self, number: int, value: Any) -> None:
        argument = self.arguments[number]
        where = f"kernel {self.name}: argument {number + 1} ({self._names[number]})"
        if type(value) is not np.ndarray and not isinstance(value, np.ndarray):
            raise TypeError(f"{where} must be a NumPy array {argument}, got {type(value).__name__}")
        if value.dtype != self._dtypes[number] or value.ndim != argument.ndim:
            raise TypeError(f"{where} must be {argument}, got {value.dtype} of {value.ndim} dimensions")
        flags = value.flags
        if not (flags.c_contiguous and flags.aligned):
            raise ValueError(f"{where} must be C-contiguous and aligned: pass numpy.ascontiguousarray of it")
        if not flags.writeable:
            raise ValueError(f"{where} is read-only, and a kernel may write to it: pass a copy")

    def _number(self, number: int, value: Any) -> int | float:
        argument, dtype = self.arguments[number], self._dtypes[number]
        where = f"kernel {self.name}: argument {number + 1} ({self._names[number]})"
        try:
            if dtype.kind == "f":
                if isinstance(value, (str, bytes)):
                    raise TypeError
                return float(value)
            whole = operator.index(value) if not isinstance(value, np.bool_) else int(value)
        except TypeError:
            raise TypeError(f"{where} must be a number {argument}, got {type(value).__name__}") from None
        except OverflowError:
            raise ValueError(f"{where} must be {argument}, got an integer that is no float64") from None
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not low <= whole <= high:
            raise ValueError(f"{where} must be {argument}, from {low} to {high}, got {whole}")
        return whole


def kernel(signature: str, **options: Any) -> Callable[[Callable[..., None]], Kernel]:
    """Make a kernel of a Python function that Numba can compile without its runtime: `@poolrt.kernel("void(f4[::1], f8)")`.

    Arguments are C-contiguous arrays (`f4[::1]`, `f4[:,::1]`) and numbers (`f4 f8 i1 .. i8 u1 .. u8 bool`). The function returns
    nothing, allocates nothing, and may call plain functions, as ``f(x)`` or ``module.f(x)``. ``fastmath`` is Numba's. Globals
    are constants from the first call on. Raises ValueError for an ill-formed signature, TypeError for unknown options and a
    wrong number of arguments.
    """
    given: Any = signature
    if isinstance(given, FunctionType):
        raise TypeError(f'write the signature first: @poolrt.kernel("void(f4[::1], f8)") above {given.__name__}')
    arguments = parse_signature(signature)
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise TypeError(f"poolrt.kernel has no option {unknown[0]!r}; it has {', '.join(_OPTIONS)}")
    if not isinstance(options.get("fastmath", False), bool):
        raise TypeError(f"fastmath must be True or False, got {options['fastmath']!r}")

    def decorator(function: Callable[..., None]) -> Kernel:
        if not isinstance(function, FunctionType):
            more = "; remove the other decorator" if hasattr(function, "py_func") else ""
            raise TypeError(f"poolrt.kernel expects a Python function, got {type(function).__name__}{more}")
        return Kernel(function, arguments, options)

    return decorator


def _has_name(kernel: Kernel) -> bool:
    """Return whether another process finds the kernel in its module. The main module of another process is another one."""
    if kernel.__module__ in ("__main__", "__mp_main__"):
        return False
    found: Any = sys.modules.get(kernel.__module__)
    for part in kernel.name.split("."):
        found = getattr(found, part, None)
    return found is kernel


def _make_blank() -> Kernel:
    """Return a kernel whose state follows in a pickle."""
    return Kernel.__new__(Kernel)


def _format(argument: Argument, dtype: np.dtype[Any]) -> str:
    """Return the packing of an argument, 8 bytes for each word."""
    if argument.ndim:
        return "Q" + "q" * argument.ndim
    return "d" if dtype.kind == "f" else "Q" if dtype.kind == "u" else "q"


def _settings() -> dict[str, str]:
    """Return the variables of Numba that may change generated code."""
    found = {name: value for name, value in os.environ.items() if name.startswith("NUMBA_")}
    if not found:
        return {}
    from poolrt.numba.code_settings import changes_code

    return {name: value for name, value in sorted(found.items()) if changes_code(name.removeprefix("NUMBA_"))}


def _isa() -> str:
    """Return the ISA level that kernels are compiled for: this host's, or a weaker one that the setting max_cpu_isa names."""
    return chosen_instructions()[0]


def _target() -> dict[str, object]:
    """Return the fields of a CPU target without extensions, whose class a warm start does not import."""
    return {"engine": "cpu", "runtime": "native", "device": {"isa": _isa()}, "threads": 0}


def _foreign(value: Any, fingerprint: Fingerprint) -> Any:
    """Describe values of Numba's, which can only be there if Numba is."""
    if isinstance(value, Kernel):
        return ["kernel", fingerprint.add(value.function)]
    if "numba.core.registry" not in sys.modules:
        return NotImplemented
    from poolrt.numba.internals import internals
    from poolrt.numba.key import Describer

    return Describer(internals())(value, fingerprint)
