"""Group normalisation: statistics over groups of channels of one image."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require
from .normalization_flags import FLAGS, normalization_memories, normalization_outputs, require_normalization


@dataclass(frozen=True, slots=True)
class GroupNormalization(OpDesc):
    """Normalise src (N, C, ...) over C/groups channels of an image at a time; scale and shift are (C,) f32.

    Mean and (biased) variance are (N, groups) f32, given with the flag ``use_global_stats`` and else computed. One group
    a channel is instance normalisation.
    """

    kind: ClassVar[str] = "group_normalization"
    src: MemoryDesc
    dst: MemoryDesc
    groups: int
    epsilon: float
    flags: tuple[str, ...] = ("use_scale", "use_shift")
    prop: str = "forward_inference"

    def __post_init__(self) -> None:
        require(self.src.ndims >= 2, "src", f"expect (N, C, ...), got {self.src.dims}")
        channels = self.src.dims[1]
        require(
            self.groups >= 1 and channels % self.groups == 0, "groups", f"{self.groups} must divide {channels} channels"
        )
        require_normalization(self, FLAGS[1:], backward=False)

    def memories(self) -> dict[int, MemoryDesc]:
        statistics = MemoryDesc((self.src.dims[0], self.groups), "f32")
        return normalization_memories(self, statistics, MemoryDesc((self.src.dims[1],), "f32"))

    def outputs(self) -> tuple[int, ...]:
        return (*OpDesc.outputs(self), *normalization_outputs(self))
