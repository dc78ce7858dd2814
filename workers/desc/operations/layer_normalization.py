"""Layer normalisation over the last dimension."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require
from .normalization_flags import FLAGS, RMS, normalization_memories, normalization_outputs, require_normalization


@dataclass(frozen=True, slots=True)
class LayerNormalization(OpDesc):
    """Normalise src (..., C) row by row: (x - mean) / sqrt(variance + epsilon) * scale + shift. Src (C,) is one row.

    Mean and (biased) variance are of shape (...), row-major f32, given with the flag ``use_global_stats`` and else
    computed over the last dimension. ``use_scale`` and ``use_shift`` bring scale and shift, (C,) f32.
    With ``rms_norm`` the mean is 0, and not among the arguments, and the variance is the mean of squares.
    """

    kind: ClassVar[str] = "layer_normalization"
    src: MemoryDesc
    dst: MemoryDesc
    epsilon: float
    flags: tuple[str, ...] = ("use_scale", "use_shift")
    prop: str = "forward_inference"
    diff_src: MemoryDesc | None = None
    diff_dst: MemoryDesc | None = None

    def __post_init__(self) -> None:
        require(self.src.ndims >= 1, "src", "expect at least one dimension")
        require_normalization(self, (*FLAGS[1:], RMS))

    def memories(self) -> dict[int, MemoryDesc]:
        return normalization_memories(
            self, MemoryDesc(self.src.dims[:-1], "f32"), MemoryDesc((self.src.dims[-1],), "f32")
        )

    def outputs(self) -> tuple[int, ...]:
        return (*OpDesc.outputs(self), *normalization_outputs(self))
