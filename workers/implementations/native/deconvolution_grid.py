"""The positions of a deconvolution's phases, the elements of dst that are a stride apart. Pure."""

from __future__ import annotations

import math

from poolrt.cachestore.deferred_dataclass import dataclass, replace

from ...desc import Deconvolution
from .deconvolution_layouts import SPATIAL


@dataclass(frozen=True, slots=True)
class Grid:
    """Sizes in three spatial dimensions: taps that an element sees, positions of phases, and the first of these in padded dst.

    A kernel that is shorter than a stride leaves phases without taps behind those that it has some for, the *kept* ones.
    """

    strides: tuple[int, ...]
    kept: tuple[int, ...]
    taps: tuple[int, ...]
    positions: tuple[int, ...]
    first: tuple[int, ...]
    src: tuple[int, ...]
    dst: tuple[int, ...]
    padding: tuple[int, ...]

    @classmethod
    def of(cls, op: Deconvolution) -> Grid:
        src, dst, kernel, strides, padding = in_three(op)
        first = tuple(pad // stride for pad, stride in zip(padding, strides, strict=True))
        last = ((size - 1 + pad) // stride for size, pad, stride in zip(dst, padding, strides, strict=True))
        positions = tuple(b - a + 1 for a, b in zip(first, last, strict=True))
        kept = tuple(min(k, stride) for k, stride in zip(kernel, strides, strict=True))
        taps = tuple(k // phases for k, phases in zip(kernel, kept, strict=True))
        return cls(strides, kept, taps, positions, first, src, dst, padding)

    @property
    def phases(self) -> int:
        """How many phases have taps."""
        return math.prod(self.kept)

    @property
    def has_gaps(self) -> bool:
        """Whether phases are without taps."""
        return self.kept != self.strides

    @property
    def is_element(self) -> bool:
        """Whether src is one element a channel, and dst all of the kernel."""
        return self.src == (1, 1, 1) and self.dst == self.kept == self.strides and self.padding == (0, 0, 0)

    @property
    def is_src(self) -> bool:
        """Whether positions are the pixels of src, so that the product reads src where it is."""
        return self.taps == (1, 1, 1) and self.positions == self.src and self.first == (0, 0, 0)


def in_three(op: Deconvolution) -> tuple[tuple[int, ...], ...]:
    """Return in three dimensions each the sizes of src, dst and kernel, strides, and padding at the beginning."""
    missing = SPATIAL - (op.src.ndims - 2)
    ones, zeros = (1,) * missing, (0,) * missing
    sizes = (op.src.dims[2:], op.dst.dims[2:], op.weights.dims[2:], op.strides)
    return (*((*ones, *each) for each in sizes), (*zeros, *op.padding_l))


def in_one_stride(op: Deconvolution) -> Deconvolution:
    """Return a deconvolution of single elements to all of the kernel as one whose kernel is a stride long: none is moved."""
    moved = any((*op.padding_l, *op.padding_r, *op.dilations))
    is_one = set(op.src.dims[2:]) == {1} and op.dst.dims[2:] == op.weights.dims[2:] and not moved
    return replace(op, strides=op.weights.dims[2:]) if is_one else op


def even_part(length: int, most: int) -> int:
    """Return the length of equal parts of at most ``most``, the last of which may be shorter."""
    most = max(1, min(length, most))
    return -(-length // -(-length // most))
