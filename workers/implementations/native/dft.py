"""Fourier transforms of f32 and f64 whose lengths have small prime factors, with any strides."""

from __future__ import annotations

import math
import struct
from array import array
from typing import Final

from ...desc import Arg, Dft, PrimitiveAttr, item_size
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation
from .strided_loops import StridedLoop, as_table, byte_strides, nested, refuse_blocks, steps

#: Numbers that a pass transforms, in the order of passes; a single factor 2 comes before all.
_RADICES: Final = (4, 2, 3, 5, 7, 11, 13)
#: Longer transforms would have tables and scratch memory of many megabytes.
_LONGEST: Final = 1 << 16
#: Bytes of a register of signals; of places of signals in scratch memory.
_WIDTH, _PLACES = 32, 128
#: Items of work at most, and bytes of their scratch memory: more of both would not be in caches.
_ITEMS, _SCRATCH = 16, 1 << 25


class NativeDft(NativeImplementation[Dft]):
    """Signals side by side in vectors, in passes of 2, 3, 4, 5, 7, 11 and 13 numbers. All sums are of the data type."""

    name = "native:dft"
    # Strides are possible, which other implementations made for speed do not get.
    general = True

    def reject(self, op: Dft, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        if op.src.dtype != op.dst.dtype or op.src.dtype not in ("f32", "f64"):
            return f"data types {op.src.dtype} and {op.dst.dtype}; only f32 or f64 is supported"
        if find_factors(op.length) is None:
            return f"length {op.length}; only prime factors up to 13 and lengths up to {_LONGEST} are supported"
        return refuse_blocks(op.src, op.dst)

    def program(self, op: Dft, attr: PrimitiveAttr, target: Target) -> Program:
        factors = find_factors(op.length)
        if op.dst.elements == 0 or factors is None:
            return Program((), ())
        size, src, dst = item_size(op.dst.dtype), byte_strides(op.src), byte_strides(op.dst)
        outer = [dim for dim in range(op.src.ndims - 1) if dim != op.axis]
        loops = nested([StridedLoop(op.src.dims[dim], (src[dim], dst[dim])) for dim in outer])
        signals, per_item = steps(loops), _PLACES + 4 * _WIDTH * op.length
        groups = -(-signals // (_WIDTH // size))
        items = max(1, min(groups, _ITEMS, _SCRATCH // per_item))
        table = as_table(loops)
        waves, before = bytearray(), 1
        start = 8 * (len(table) + 4 * len(factors))
        for radix in factors:
            behind = op.length // (before * radix)
            table += (radix, before, behind, start + len(waves))
            waves += _waves(op.length, radix, before, behind, "f" if size == 4 else "d")
            before *= radix
        numbers = (
            len(loops), len(factors), signals, items, op.length, op.read, op.dst.dims[op.axis], op.mirrors, op.inverse,
            op.src.dims[-1], op.dst.dims[-1], src[op.axis], dst[op.axis], src[-1], dst[-1],
        )  # fmt: skip
        memories: tuple[LaunchArgument, ...] = (("m", (int(Arg.SRC), 0)), ("m", (int(Arg.DST), 0)), ("t", 0), ("s", 0))
        factor: LaunchArgument = ("f", 1 / op.length if op.inverse else 1.0)
        args = (*memories, *(("i", int(number)) for number in numbers), factor)
        kernel = KernelSpec.of("dft", kind=op.dst.dtype, primes="small" if max(factors, default=1) <= 5 else "all")
        return Program(
            (kernel,), (Launch(0, args, items),), struct.pack(f"<{len(table)}q", *table) + waves, per_item * items
        )


def find_factors(length: int) -> tuple[int, ...] | None:
    """Return the numbers that the passes of a length transform; None if it has other prime factors or is too long."""
    if length > _LONGEST:
        return None
    found: list[int] = []
    for radix in _RADICES:
        while length % radix == 0:
            found.insert(0 if radix == 2 else len(found), radix)
            length //= radix
    return tuple(found) if length == 1 else None


def _waves(length: int, radix: int, before: int, behind: int, code: str) -> bytes:
    """Return cosines and sines of a pass: of all results but the first, of all numbers behind but the first."""
    found: array[float] = array(code)
    for index in range(1, behind):
        for number in range(1, radix):
            found.extend(_wave(number * before * index, length))
    return found.tobytes()


def _wave(step: int, length: int) -> tuple[float, float]:
    """Return the cosine and the sine of a part of the circle, of angles of an eighth at most: errors are those of rounding."""
    quarter, rest = divmod(4 * (step % length), length)
    if 2 * rest > length:
        angle = math.pi / 2 * (length - rest) / length
        cosine, sine = math.sin(angle), math.cos(angle)
    else:
        angle = math.pi / 2 * rest / length
        cosine, sine = math.cos(angle), math.sin(angle)
    return ((cosine, sine), (-sine, cosine), (-cosine, -sine), (sine, -cosine))[quarter]


IMPLEMENTATIONS = (NativeDft(),)
