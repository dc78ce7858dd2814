"""Fold: an image of blocks that overlap."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class Fold(OpDesc):
    """Add up blocks of an image at their places: the opposite of unfolding it into the windows of a convolution.

    src (N, C, *kernel, *positions) has the elements of a block of each position, dst (N, C, *image) one to three spatial
    dimensions. Element k of the block at position o is at o * stride + k * (dilation + 1) - padding in each dimension; those
    outside of the image are left out. Elements without any are 0.
    """

    kind: ClassVar[str] = "fold"
    src: MemoryDesc
    dst: MemoryDesc
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding_l: tuple[int, ...]

    def __post_init__(self) -> None:
        count = self.dst.ndims - 2
        require(1 <= count <= 3, "dst", f"expect (N, C, *image) with one to three dimensions, got {self.dst.dims}")
        fits = self.src.ndims == 2 + 2 * count and self.src.dims[:2] == self.dst.dims[:2]
        require(fits, "src", f"expect {(*self.dst.dims[:2], '*kernel', '*positions')}, got {self.src.dims}")
        for name, least in (("strides", 1), ("dilations", 0), ("padding_l", 0)):
            given = getattr(self, name)
            fits = len(given) == count and all(number >= least for number in given)
            require(fits, name, f"expect {count} numbers of at least {least}, got {given}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
