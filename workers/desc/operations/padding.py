"""Padding: zeros where a blocked layout holds more than the tensor's elements."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class Padding(OpDesc):
    """Zero the padding of dst and leave its elements as they are. `Memory` executes it on a user's stream."""

    kind: ClassVar[str] = "padding"
    dst: MemoryDesc

    def __post_init__(self) -> None:
        require(not self.dst.is_any, "dst", "expect a layout")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.DST: self.dst}
