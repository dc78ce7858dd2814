"""Batch normalisation, with given statistics or those of the batch."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require
from .normalization_flags import normalization_memories, normalization_outputs, require_normalization


@dataclass(frozen=True, slots=True)
class BatchNormalization(OpDesc):
    """Normalise src (N, C, ...) channel by channel: (x - mean) / sqrt(variance + epsilon) * scale + shift, each (C,) f32.

    Mean and (biased) variance are given with the flag ``use_global_stats``, else computed over all but the channels.
    ``use_scale`` and ``use_shift`` bring scale and shift. ``fuse_norm_relu`` sets negative results to 0; its workspace
    marks the others (u8, 1: kept).
    """

    kind: ClassVar[str] = "batch_normalization"
    src: MemoryDesc
    dst: MemoryDesc
    epsilon: float
    flags: tuple[str, ...] = ("use_global_stats", "use_scale", "use_shift")
    prop: str = "forward_inference"
    diff_src: MemoryDesc | None = None
    diff_dst: MemoryDesc | None = None

    def __post_init__(self) -> None:
        require(self.src.ndims >= 2, "src", f"expect (N, C, ...), got {self.src.dims}")
        require_normalization(self)

    def memories(self) -> dict[int, MemoryDesc]:
        channel = MemoryDesc((self.src.dims[1],), "f32")
        return normalization_memories(self, channel, channel)

    def outputs(self) -> tuple[int, ...]:
        return (*OpDesc.outputs(self), *normalization_outputs(self))
