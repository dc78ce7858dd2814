"""Select: elements of one tensor or of another, as a condition says."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class Select(OpDesc):
    """Take elements of src0 where the condition is not 0, else of src1; a dimension of 1 is broadcast."""

    kind: ClassVar[str] = "select"
    condition: MemoryDesc
    src0: MemoryDesc
    src1: MemoryDesc
    dst: MemoryDesc

    def __post_init__(self) -> None:
        for name in ("condition", "src0", "src1"):
            md = getattr(self, name)
            fits = md.ndims == self.dst.ndims and all(
                size in (1, wide) for size, wide in zip(md.dims, self.dst.dims, strict=True)
            )
            require(fits, name, f"{md.dims} does not broadcast to {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.condition, Arg.SRC_1: self.src0, Arg.SRC_2: self.src1, Arg.DST: self.dst}
