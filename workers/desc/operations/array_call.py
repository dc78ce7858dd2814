"""The call of launches on arrays: compiled code that reads where arrays are, created and cached like a primitive."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc


@dataclass(frozen=True, slots=True)
class ArrayCall(OpDesc):
    """The kernel that runs launches of any primitive on NumPy arrays whose objects it is given."""

    kind: ClassVar[str] = "array_call"

    def memories(self) -> dict[int, MemoryDesc]:
        return {}
