"""Rotary: pairs of elements of rows, rotated by angles."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class Rotary(OpDesc):
    """Rotate pairs of the first 2 R elements of rows of src (A, B, C, D); dst has its shape, and the elements behind them.

    ``cosine`` and ``sine`` (A, B, C, R), where each but R may be 1, have those of the angles. Pair k is the elements 2 k and
    2 k + 1 if they are ``interleaved``, else k and R + k: (x, y) becomes (x cos - y sin, y cos + x sin).
    """

    kind: ClassVar[str] = "rotary"
    src: MemoryDesc
    cosine: MemoryDesc
    sine: MemoryDesc
    dst: MemoryDesc
    interleaved: bool = False

    def __post_init__(self) -> None:
        require(self.src.ndims == 4, "src", f"expect four dimensions, got {self.src.dims}")
        dims = self.src.dims
        require(self.dst.dims == dims, "dst", f"expect {dims}, got {self.dst.dims}")
        given = self.cosine.dims
        fits = len(given) == 4 and all(size in (1, whole) for size, whole in zip(given[:3], dims[:3], strict=True))
        require(fits and 2 * given[3] <= dims[3], "cosine", f"expect angles of pairs of {dims}, got {given}")
        require(self.sine.dims == given, "sine", f"expect {given}, got {self.sine.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.SRC_1: self.cosine, Arg.SRC_2: self.sine, Arg.DST: self.dst}
