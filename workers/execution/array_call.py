"""Runs a realized native primitive on NumPy matrices in one call of compiled code, which looks at the arrays' objects itself.

For a small product, the interpreter would take as long to read shapes and addresses as the kernel to multiply.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..engines.object_loader import NativeKernel, load_object
from ..memory.array_address import IN_ORDER, address_of_items
from ..memory.buffer import SLACK, Buffer
from ..threadpools.kernel_call import bind_call
from .calling_thread import BoundLaunches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from .native_binding import RealizedPrimitive

#: Nanoseconds of work for which letting go of the interpreter's lock, and taking it again, is worth their time.
_LONG: Final = 5_000
_FAILED: Final = 2


class ArrayCalls:
    """Executes one primitive on row-major matrices of float32 of the same shapes, any number of threads at once.

    ``args`` are the arguments of an execution, the last of which is written. ``wanted`` are rows, columns, and the bytes from the
    first element to the end, or 0 if nothing behind is read, of each of the others.
    """

    __slots__ = ("_args", "_idle", "_kernel", "_primitive", "_wanted")

    def __init__(
        self,
        kernel: NativeKernel,
        primitive: RealizedPrimitive,
        args: Sequence[int],
        wanted: Sequence[tuple[int, ...]],
    ) -> None:
        self._kernel = kernel
        self._primitive = primitive
        self._args = tuple(args)
        self._wanted = wanted
        #: Calls that no execution uses now.
        self._idle: list[_Call] = []

    def run(self, a: object, b: object, product: NDArray[Any]) -> bool:
        """Compute a product and return whether a and b are matrices that have the wanted shapes; else nothing is done.

        Raises KernelFailed.
        """
        idle = self._idle
        try:
            call = idle.pop()
        except IndexError:
            call = _Call(self._kernel, self._primitive, self._args, self._wanted)
        arrays = call.arrays
        arrays[0] = a
        arrays[1] = b
        arrays[2] = product
        call.run()
        result = call.result[0]
        # An interrupt before drops the call.
        arrays[0] = arrays[1] = arrays[2] = None
        if result == _FAILED:
            raise call.failure()
        idle.append(call)
        return result == 0


class _Call:
    """Bound launches and their scratch memory, for one execution at a time."""

    __slots__ = ("_keep", "_launches", "arrays", "result", "run")

    def __init__(
        self, kernel: NativeKernel, primitive: RealizedPrimitive, args: tuple[int, ...],
        wanted: Sequence[tuple[int, ...]],
    ) -> None:  # fmt: skip
        launches = self._launches = BoundLaunches(primitive, args)
        #: The arrays of an execution.
        self.arrays: list[Any] = [None] * len(args)
        scratchpad = Buffer(primitive.entry.scratchpad) if primitive.entry.scratchpad else None
        places: list[int] = []
        for block, index, number, offset in launches.places:
            if number < len(args):
                places += [ctypes.addressof(block) + 8 * index, number, offset]
            elif scratchpad is not None:
                block[index] = scratchpad.address + offset
        calls = [value for _, region in launches.calls for value in (region.function, region.blobs[0])]
        #: 0, or 1 if other matrices were given, or 2, the number of a launch and its error.
        self.result = (ctypes.c_int64 * 3)()
        self.run: Callable[[], int]
        is_long = sum(region.nanoseconds for _, region in launches.calls) > _LONG
        tables = [(ctypes.c_int64 * max(len(values), 1))(*values) for values in (_flat(wanted), places, calls)]
        of_wanted, of_places, of_calls = map(ctypes.addressof, tables)
        items = (ctypes.c_int64 * 1)(address_of_items(self.arrays))
        head = object.__basicsize__
        packed = (ctypes.c_int64 * 18)(
            0, 1, ctypes.addressof(items), head, id(np.ndarray), id(np.dtype("float32")), IN_ORDER, of_wanted, len(wanted),
            SLACK, mmap.PAGESIZE - 1, of_places, len(places) // 3, of_calls, len(launches.calls),
            *(_ADDRESSES_OF_LOCK if is_long else (0, 0)), ctypes.addressof(self.result),
        )  # fmt: skip
        room = (ctypes.c_int64 * 8)()
        self.run = bind_call(kernel.address, ctypes.addressof(room), ctypes.addressof(packed), locked=True)
        self._keep = kernel, scratchpad, tables, items, packed, room

    def failure(self) -> BaseException:
        """Return the error of the launch that failed."""
        _, region = self._launches.calls[self.result[1]]
        return region.failure(self.result[2])


@lru_cache(maxsize=1)
def array_call() -> NativeKernel:
    """Return the kernel from the primitive cache of this process. Raises what `PrimitiveProvider.fetch` raises."""
    from ..desc import PrimitiveAttr
    from ..desc.operations.array_call import ArrayCall
    from ..engines.target import cpu_target
    from ..implementations.primitive_desc import primitive_desc
    from ..primitives.provider import primitive_provider

    cached, _ = primitive_provider().fetch(primitive_desc(ArrayCall(), PrimitiveAttr(), cpu_target()))
    return load_object(cached.entry.binaries[0])


def _flat(wanted: Sequence[tuple[int, ...]]) -> list[int]:
    return [number for numbers in wanted for number in numbers]


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


#: Of the functions that let go of the interpreter's lock, and take it again.
_ADDRESSES_OF_LOCK: Final = (
    _address(ctypes.pythonapi.PyEval_SaveThread),
    _address(ctypes.pythonapi.PyEval_RestoreThread),
)
