"""Recurrent network of LSTM cells."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc
from .recurrent import complete_activations, recurrent_memories, require_recurrent


@dataclass(frozen=True, slots=True)
class Lstm(OpDesc):
    """Run cells with gates i, f, c, o (oneDNN's order): c = f * c + i * c~, h = o * tanh(c), over T steps.

    src_layer (T, N, C), weights_layer (L, D, C, 4, H), weights_iter (L, D, H, 4, H), bias (L, D, 4, H), dst_layer
    (T, N, H, or 2 H for bidirectional_concat), the states src_iter (h),
    src_iter_c (c), dst_iter and dst_iter_c (L, D, N, H); an initial state left out is 0. weights_peephole (L, D, 3, H)
    has a number for each channel of gates i, f and o, to whose sums it adds a multiple of c: of c before the step to i and f,
    of c after it to o.
    ``activations`` are the functions of gates i, f and o, of c~, and of c in h, eltwise algorithms with ``alphas`` and ``betas``.
    A ``clip`` that is not 0 limits what functions of gates are computed of, to between its negative and itself.
    """

    kind: ClassVar[str] = "lstm"
    src_layer: MemoryDesc
    src_iter: MemoryDesc | None
    src_iter_c: MemoryDesc | None
    weights_layer: MemoryDesc
    weights_iter: MemoryDesc
    bias: MemoryDesc | None
    dst_layer: MemoryDesc
    dst_iter: MemoryDesc | None
    dst_iter_c: MemoryDesc | None
    direction: str = "left2right"
    prop: str = "forward_inference"
    clip: float = 0.0
    weights_peephole: MemoryDesc | None = None
    activations: tuple[str, ...] = ("logistic", "tanh", "tanh")
    alphas: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        complete_activations(self, 3)
        require_recurrent(self, 4, 4)

    def memories(self) -> dict[int, MemoryDesc]:
        return recurrent_memories(self)
