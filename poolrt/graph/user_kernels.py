"""Kernels of users as data: a native object with its parameters, or the text of an OpenCL program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, Protocol, runtime_checkable

from poolrt.cachestore.deferred_dataclass import dataclass

#: Types of parameters that are no arrays.
NUMBERS: Final = ("int", "float")


@dataclass(frozen=True, slots=True)
class NativeKernel:
    """Machine code of a function without a result, and its parameters in order.

    A parameter is ``int``, ``float``, or an array: data type and rank, as in ``f32:2``. ``code`` is a position-independent
    object for the ISA level ``isa``. Its entry takes the range, then the address and the dimensions of each array, int64 and
    float64. ``ranged``: the function is called over parts of its work, else once.
    """

    name: str
    parameters: tuple[str, ...]
    ranged: bool
    isa: str
    code: bytes

    @classmethod
    def compile(cls, function: Callable[..., None], signature: str, isa: str = "") -> NativeKernel:
        """Compile a function with Numba, for an ISA level, by default this processor's.

        A ``signature`` such as ``void(i8, i8, f4[:, ::1], f4[:, ::1], f8)`` begins with two int64 if the function is called
        over ranges of its work, as begin and end; arrays are C-contiguous. Raises ValueError for a signature that no graph
        can call, and CompileError with Numba's own message: the function may raise exceptions, but make no arrays.
        """
        compiler = import_module("poolrt.workers.kernels.native.user_function")
        return cls(*compiler.compile_user_function(function, signature, isa))


@dataclass(frozen=True, slots=True)
class OpenClKernel:
    """A kernel of an OpenCL program; its text includes no files.

    It gets a ``__global`` pointer for each array and a number for each scalar. ``options`` are build options: ``-D NAME=VALUE``,
    ``-cl-...`` and ``-w``. Raises ValueError for a text that is too long or includes files, TypeError for what is no text.
    """

    source: str
    name: str
    options: str = ""

    def __post_init__(self) -> None:
        for argument in ("source", "name", "options"):
            given = getattr(self, argument)
            if not isinstance(given, str):
                raise TypeError(f"{argument}: expect text, got {type(given).__name__}")
        source = import_module("poolrt.workers.kernels.opencl.source")
        source.refuse_includes(self.source)
        from poolrt.workers.desc.operations.call import MOST_CODE

        if len(self.source.encode()) > MOST_CODE:
            raise ValueError(f"the source has {len(self.source.encode())} bytes, more than {MOST_CODE}")


@runtime_checkable
class KernelSource(Protocol):
    """An object that has a kernel for graphs."""

    def __poolrt_kernel__(self) -> NativeKernel | OpenClKernel:
        """Return the kernel."""
        ...


def kernel_of(given: Any) -> NativeKernel | OpenClKernel:
    """Return the kernel that an object is or has, also a `pyopencl.Kernel`. Raises ValueError for any other object."""
    found = given.__poolrt_kernel__() if isinstance(given, KernelSource) else given
    if isinstance(found, (NativeKernel, OpenClKernel)):
        return found
    pyopencl = sys.modules.get("pyopencl")
    if pyopencl is not None and isinstance(given, pyopencl.Kernel):
        return OpenClKernel(*import_module("poolrt.opencl.kernels").describe_kernel(given))
    advice = '; decorate it: @poolrt.kernel("void(f4[::1], f4[::1])")' if callable(given) else ""
    raise ValueError(f"kernel: expect a NativeKernel or an OpenClKernel, got {type(given).__name__}{advice}")
