"""Reorder: a tensor copied into another layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of, require


@dataclass(frozen=True, slots=True)
class Reorder(OpDesc):
    """Copy a tensor into another layout or data type, or to another engine.

    A transposition is a reorder whose source tag names the permuted order. Values that dst's type cannot hold are
    rounded to even and saturated. ``src_engine`` and ``dst_engine`` are engine kinds, empty for that of the target.
    """

    kind: ClassVar[str] = "reorder"
    src: MemoryDesc
    dst: MemoryDesc
    src_engine: str = ""
    dst_engine: str = ""

    def __post_init__(self) -> None:
        require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        require(not (self.src.is_any or self.dst.is_any), "dst", "a reorder's layouts must both be given")
        for name in ("src_engine", "dst_engine"):
            one_of(name, getattr(self, name), ("", "cpu", "opencl"))

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
