"""The ends of rings: the compiled loop of a worker and waits of clients, created and cached like a primitive, without tensors."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc


@dataclass(frozen=True, slots=True)
class RingEnds(OpDesc):
    """The kernels that clients and workers of a pool call for runs on rings."""

    kind: ClassVar[str] = "ring_ends"

    def memories(self) -> dict[int, MemoryDesc]:
        return {}
