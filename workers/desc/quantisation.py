"""Scales and zero points of an argument: execution arguments, or constants of the primitive."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass, replace
from poolrt.cachestore.deferred_namedtuple import NamedTuple

from .args import Arg, scales_of, zero_points_of
from .memory_desc import MemoryDesc
from .typed import Number, Typed

#: Arguments that can be quantised, besides the sources of sum and concat.
_QUANTISED: Final = (Arg.SRC, Arg.SRC_1, Arg.WEIGHTS, Arg.DST)
_LEAST: Final = -(1 << 31)
_MOST: Final = (1 << 31) - 1


class Kind(NamedTuple):
    """The data type of values, the argument that they are given as, and the letter that `struct` packs them by."""

    dtype: str
    argument: Callable[[int], int]
    letter: str


#: Attribute -> what its values are.
KINDS: Final = {"scales": Kind("f32", scales_of, "f"), "zero_points": Kind("s32", zero_points_of, "i")}


@dataclass(frozen=True, slots=True)
class Quantisation(Typed):
    """Scales or zero points of one argument: bit d of ``mask`` is set if they vary along its dimension d.

    There is one value for all of the tensor (mask 0), or a row-major tensor of the masked dimensions. They are given
    when a primitive is executed, as the argument `scales_of(arg)` (f32) or `zero_points_of(arg)` (s32), or here as
    ``values``: then they are constants, part of the key, in the memory of each engine that uses the primitive.
    """

    arg: int
    mask: int = 0
    values: tuple[Number, ...] = ()

    def __post_init__(self) -> None:
        source = Arg.MULTIPLE_SRC <= self.arg < Arg.ATTR_SCALES
        if self.arg not in _QUANTISED and not source:
            raise ValueError(
                f"arg: argument {self.arg} takes no scales or zero points; these do: {[int(a) for a in _QUANTISED]}, sources"
            )
        if self.mask < 0:
            raise ValueError(f"mask: must not be negative, got {self.mask}")

    def of(self, name: str) -> Quantisation:
        """Return this as ``scales``, with values as float32, or as ``zero_points``, with int32.

        Raises ValueError for values that these types do not have.
        """
        if not self.values:
            return self
        return replace(self, values=tuple(map(_scale if name == "scales" else _zero_point, self.values)))

    def desc(self, quantised: MemoryDesc, dtype: str) -> MemoryDesc:
        """Return the memory descriptor of the values for an argument described by ``quantised``: of rank 1.

        Raises ValueError if the mask names a dimension that the argument does not have.
        """
        if self.mask >> quantised.ndims:
            raise ValueError(f"mask: {self.mask:#x} names a dimension that {quantised} does not have")
        count = 1
        for dim, size in enumerate(quantised.dims):
            if self.mask >> dim & 1:
                count *= size
        return MemoryDesc((count,), dtype)

    def packed(self, name: str) -> bytes:
        """Return the values of ``scales`` or ``zero_points`` in their layout in memory."""
        return struct.pack(f"<{len(self.values)}{KINDS[name].letter}", *self.values)


def _scale(value: float) -> float:
    """Return a float32. Zero has no sign: scales that compare equal make equal keys."""
    try:
        (narrow,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        narrow = math.inf
    if not math.isfinite(narrow):
        raise ValueError(f"scales: expect values that a float32 holds, got {value!r}")
    return float(narrow) + 0.0


def _zero_point(value: float) -> int:
    if not _LEAST <= value <= _MOST or value != int(value):
        raise ValueError(f"zero_points: expect values that an int32 holds, got {value!r}")
    return int(value)
