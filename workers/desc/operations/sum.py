"""Sum: tensors of one shape added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..args import Arg, multiple_src
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class Sum(OpDesc):
    """Add tensors of one shape."""

    kind: ClassVar[str] = "sum"
    srcs: tuple[MemoryDesc, ...]
    dst: MemoryDesc

    def __post_init__(self) -> None:
        require(len(self.srcs) >= 1, "srcs", "expect at least one source")
        require(all(s.dims == self.dst.dims for s in self.srcs), "srcs", f"expect {self.dst.dims} for each")

    def memories(self) -> dict[int, MemoryDesc]:
        return {**{multiple_src(i): s for i, s in enumerate(self.srcs)}, Arg.DST: self.dst}
