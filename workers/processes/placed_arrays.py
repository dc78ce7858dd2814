"""Arguments that are scalars and arrays of the arena: in one flat tuple of scalars, which names the arrays in place.

Neither side makes or reads a pickle or a table for them. The tuple begins with a letter for each argument: `_SCALAR`, or the
order in memory of an array. Then come the values: a scalar, or an array's offset, data type, number of dimensions and dimensions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from sys import modules
from typing import TYPE_CHECKING, Any, Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..ipc.outlined_payload import IN_PLACE, LONG, Place
from .outlined_buffers import describes
from .plain_pickles import is_scalar, pack_scalars

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SCALAR: Final = "s"
#: The texts of data types that `describes` accepts, none of which has objects.
_DTYPE: Final = re.compile(r"[<>|][biufcmMSU]\d{1,9}(\[\d*[A-Za-z]+\])?")


class Held(NamedTuple):
    """An array that is named in place, and where it is."""

    array: NDArray[Any]
    place: Place


class PlacedArguments(NamedTuple):
    """Parsed arguments: None for each array; index, shape, data type and order of the arrays; and their places."""

    args: list[Any]
    arrays: list[tuple[int, tuple[int, ...], Any, Any]]
    places: tuple[Place, ...]

    def fill(self, buffers: Sequence[Any]) -> list[Any]:
        """Return the arguments, with arrays of the memory of their places. Raises ValueError or TypeError if it is too short."""
        args = self.args.copy()
        make = _array_type()
        for (index, shape, dtype, order), buffer in zip(self.arrays, buffers, strict=True):
            # Names of arguments take twice as long as all else.
            args[index] = make(shape, dtype, buffer, 0, None, order)
        return args


def pack_placed(args: tuple[Any, ...], find: Callable[[int, int], int]) -> tuple[bytes, list[Held]] | None:
    """Return arguments as bytes, and the arrays among them; None unless all are scalars or long arrays in the arena, each once.

    ``find(address, nbytes)`` returns the offset of memory in the arena, -1 for other memory.
    """
    kinds = ""
    flat: list[Any] = [kinds]
    held: list[Held] = []
    array = _array_type() if "numpy" in modules else None
    for value in args:
        if type(value) is not array:
            if not is_scalar(value):
                return None
            kinds += _SCALAR
            flat.append(value)
            continue
        nbytes: int = value.nbytes
        # An array that owns its memory is not in the arena.
        if nbytes < LONG or value.base is None:
            return None
        dtype = value.dtype
        text = _text_of(dtype)
        if not text or dtype.metadata is not None:
            return None
        address, order = _address_in_order()(value), "C"
        if not address:
            flags = value.flags
            if not flags.forc:
                return None
            address, order = _address_of()(value), "C" if flags.c_contiguous else "F"
        offset = find(address, nbytes)
        if offset < 0:
            return None
        for each in held:
            if each[0] is value:
                return None  # a pickle makes one array of it
        shape = value.shape
        kinds += order
        flat += (offset, text, len(shape), *shape)
        # Half the time of their constructors.
        held.append(tuple.__new__(Held, (value, tuple.__new__(Place, (IN_PLACE, offset, nbytes)))))
    flat[0] = kinds
    packed = pack_scalars(tuple(flat))
    return None if packed is None else (packed, held)


def parse_placed(flat: tuple[Any, ...]) -> PlacedArguments:
    """Return what `pack_placed` has packed. Raises ValueError, TypeError or IndexError for what nothing packed.

    Guarantees: no array that `PlacedArguments.fill` makes has memory that is not of its place.
    """
    args: list[Any] = []
    arrays: list[tuple[int, tuple[int, ...], Any, Any]] = []
    places: list[Place] = []
    at = 1
    for kind in flat[0]:
        if kind == _SCALAR:
            args.append(flat[at])
            at += 1
            continue
        offset, text, count = flat[at : at + 3]
        shape = flat[at + 3 : at + 3 + count]
        at += 3 + count
        dtype = _dtype(text)
        nbytes = dtype.itemsize
        for extent in shape:
            if type(extent) is not int or extent < 0:
                raise TypeError(f"an array of extent {extent!r}")  # a text times a number would be a long text
            nbytes *= extent
        arrays.append((len(args), shape, dtype, kind))
        args.append(None)
        places.append(Place(IN_PLACE, offset, nbytes))
    return PlacedArguments(args, arrays, tuple(places))


@lru_cache(64)
def _text_of(dtype: Any) -> str:
    """Return the text of a data type, empty if that does not stand for it."""
    return dtype.str if describes(dtype) else ""


@lru_cache(64)
def _dtype(text: str) -> Any:
    """Return a data type by its text. Raises TypeError for one of objects, whose bytes would be taken for addresses."""
    import numpy

    if _DTYPE.fullmatch(text) is None:
        raise TypeError(f"an argument of data type {text!r}")
    return numpy.dtype(text)


@lru_cache(1)
def _address_of() -> Callable[[Any], int]:
    """Return a function of a module that imports NumPy. An import in a function takes a microsecond each time."""
    from ..memory.array_address import address_of

    return address_of


@lru_cache(1)
def _address_in_order() -> Callable[[Any], int]:
    from ..memory.array_address import address_in_order

    return address_in_order


@lru_cache(1)
def _array_type() -> Any:
    import numpy

    return numpy.ndarray
