"""Sum: tensors of one shape added."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import MOST_SOURCES, Arg, multiple_src
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require
from ..typed import Signed


@dataclass(frozen=True, slots=True)
class Sum(OpDesc):
    """Add tensors of one shape, each times its scale (1 where there are no scales)."""

    kind: ClassVar[str] = "sum"
    srcs: tuple[MemoryDesc, ...]
    dst: MemoryDesc
    scales: tuple[Signed, ...] = ()

    def __post_init__(self) -> None:
        require(1 <= len(self.srcs) <= MOST_SOURCES, "srcs", f"expect at least one source, at most {MOST_SOURCES}")
        require(all(s.dims == self.dst.dims for s in self.srcs), "srcs", f"expect {self.dst.dims} for each")
        require(len(self.scales) in (0, len(self.srcs)), "scales", f"expect {len(self.srcs)}, got {len(self.scales)}")
        if all(scale == 1.0 for scale in self.scales):
            object.__setattr__(self, "scales", ())

    def memories(self) -> dict[int, MemoryDesc]:
        return {**{multiple_src(i): s for i, s in enumerate(self.srcs)}, Arg.DST: self.dst}
