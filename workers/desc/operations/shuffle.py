"""Shuffle: groups of an axis interleaved."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import FORWARD, OpDesc, one_of, require


@dataclass(frozen=True, slots=True)
class Shuffle(OpDesc):
    """Transpose an axis seen as (size / group_size, group_size): element i * rows + j of dst is j * group_size + i of src.

    ``rows`` is size / group_size (oneDNN's definition).
    """

    kind: ClassVar[str] = "shuffle"
    src: MemoryDesc
    dst: MemoryDesc
    axis: int
    group_size: int
    prop: str = "forward_inference"

    def __post_init__(self) -> None:
        one_of("prop", self.prop, FORWARD)
        require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        require(0 <= self.axis < self.src.ndims, "axis", f"expect 0..{self.src.ndims - 1}, got {self.axis}")
        size = self.src.dims[self.axis]
        require(
            self.group_size >= 1 and size % self.group_size == 0, "group_size", f"{self.group_size} must divide {size}"
        )

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
