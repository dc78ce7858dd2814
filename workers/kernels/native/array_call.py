"""Check the objects of NumPy arrays and run launches on their memory, in one call from the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .atomics import atomic_store, call_function, call_kernel
from .compiler import types
from .vec import iload

#: Bytes from the end of an object's head to words of an array: address of the data, dimensions (a half), address of their sizes,
#: data type, and flags (a half). The word before is the object's type.
_DATA, _RANK, _SIZES, _DTYPE, _FLAGS = 0, 8, 16, 40, 48
_TYPE: Final = -8
_HALF: Final = 0xFFFFFFFF
#: Words of what is wanted of an array, and of a place where its address is needed, and of a launch.
_WANTED, _PLACE, _LAUNCH = 24, 24, 16
#: What is written as the result.
_DONE, _OTHERS, _FAILED = 0, 1, 2


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel. It runs launches if matrices are what they are made for.

    Arguments: the address of the word with the address of the arrays' addresses, and the bytes of an object's head;
    addresses of the type of arrays and of their data type, and the flags that they must have; the address of what is wanted
    of each array (rows, columns, and the bytes from its first element to its end, if others are read behind it, else 0), and
    for how many of the first ones that is; the bytes that are read there, and those of a page less 1; the address of places
    where addresses are needed (their own address, the number of an array, bytes that are added), and how many these are;
    that of launches (addresses of a kernel and of its arguments), and how many; addresses of functions that let go of the
    interpreter's lock and take it again, 0 if none are called; and where the result goes: 0, or 1 for other matrices, or 2 for
    a launch that failed, whose number and error follow. The caller has the interpreter's lock.
    """

    def array_call(
        begin: int, end: int, arrays: int, head: int, array_type: int, dtype: int, flags: int, wanted: int, count: int,
        slack: int, page: int, places: int, place_count: int, launches: int, launch_count: int, let_go: int, take: int,
        result: int,
    ) -> None:  # fmt: skip
        at = iload(arrays)
        for number in range(count):
            words = iload(at + number * 8) + head
            want = wanted + number * _WANTED
            if not _is_matrix(words, array_type, dtype, flags, want):
                atomic_store(result, _OTHERS)
                return
            reach = iload(want + 16)
            if reach != 0 and ((0 - (iload(words + _DATA) + reach)) & page) < slack:
                atomic_store(result, _OTHERS)
                return
        for number in range(place_count):
            place = places + number * _PLACE
            words = iload(at + iload(place + 8) * 8) + head
            atomic_store(iload(place), iload(words + _DATA) + iload(place + 16))
        atomic_store(result, _DONE)
        state = 0
        if let_go != 0:
            state = call_function(let_go, 0)
        for number in range(launch_count):
            launch = launches + number * _LAUNCH
            failure = call_kernel(iload(launch), iload(launch + 8))
            if failure != 0:
                atomic_store(result, _FAILED)
                atomic_store(result + 8, number)
                atomic_store(result + 16, failure)
                break
        if let_go != 0:
            call_function(take, state)

    return array_call, types.void(*[types.int64] * 18)


def _is_matrix(words: int, array_type: int, dtype: int, flags: int, want: int) -> bool:
    """Return whether an object is an array of a type, its data type and flags, and of the wanted rows and columns."""
    if iload(words + _TYPE) != array_type:
        return False
    if (
        iload(words + _DTYPE) != dtype
        or (iload(words + _RANK) & _HALF) != 2
        or (iload(words + _FLAGS) & flags) != flags
    ):
        return False
    sizes = iload(words + _SIZES)
    return iload(sizes) == iload(want) and iload(sizes + 8) == iload(want + 8)
