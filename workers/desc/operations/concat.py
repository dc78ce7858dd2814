"""Concat: tensors joined along an axis."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import MOST_SOURCES, Arg, multiple_src
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class Concat(OpDesc):
    """Join tensors along an axis."""

    kind: ClassVar[str] = "concat"
    srcs: tuple[MemoryDesc, ...]
    dst: MemoryDesc
    axis: int

    def __post_init__(self) -> None:
        require(1 <= len(self.srcs) <= MOST_SOURCES, "srcs", f"expect at least one source, at most {MOST_SOURCES}")
        require(0 <= self.axis < self.dst.ndims, "axis", f"expect 0..{self.dst.ndims - 1}, got {self.axis}")
        total = 0
        for source in self.srcs:
            same = source.ndims == self.dst.ndims and all(
                a == b for i, (a, b) in enumerate(zip(source.dims, self.dst.dims, strict=True)) if i != self.axis
            )
            require(same, "srcs", f"{source.dims} does not join to {self.dst.dims} along axis {self.axis}")
            total += source.dims[self.axis]
        require(total == self.dst.dims[self.axis], "dst", f"expect {total} along axis {self.axis}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {**{multiple_src(i): s for i, s in enumerate(self.srcs)}, Arg.DST: self.dst}
