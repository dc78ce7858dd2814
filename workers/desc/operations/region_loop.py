"""The region loop: the compiled loop of a threadpool, created and cached like a primitive, but without tensors."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc


@dataclass(frozen=True, slots=True)
class RegionLoop(OpDesc):
    """The kernels that threads of a native threadpool run; one for every number of threads."""

    kind: ClassVar[str] = "region_loop"

    def memories(self) -> dict[int, MemoryDesc]:
        return {}
