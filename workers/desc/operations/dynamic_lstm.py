"""DynamicLstm: an LSTM cell over a sequence, whose states are quantised by their range before they are multiplied."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class DynamicLstm(OpDesc):
    """Run cells with gates i, f, c, o over T steps: c = f * c + i * c~, h = o * tanh(c); dst (T, N, H) has h of each step.

    src (T, N, 4, H) is what inputs and biases add to the gates. Each step quantises h of all sequences as `DynamicQuantise` does,
    multiplies the bytes less their zero point by weights (H, 4, H) less ``points`` (4, H; s32; none: 0) exactly, and the sums by
    the scale of h times ``scales`` (4, H). The first h and c are src_iter and src_iter_c (N, H; none: 0), the last c is
    dst_iter_c (N, H). The first step is the last element if steps go ``backwards``.
    """

    kind: ClassVar[str] = "dynamic_lstm"
    src: MemoryDesc
    src_iter: MemoryDesc | None
    src_iter_c: MemoryDesc | None
    weights: MemoryDesc
    scales: MemoryDesc
    points: MemoryDesc | None
    dst: MemoryDesc
    dst_iter_c: MemoryDesc
    backwards: bool = False

    def __post_init__(self) -> None:
        require(self.src.ndims == 4 and self.src.dims[2] == 4, "src", f"expect (T, N, 4, H), got {self.src.dims}")
        steps, batch, gates, hidden = self.src.dims
        for name, dims in (
            ("src_iter", (batch, hidden)), ("src_iter_c", (batch, hidden)), ("weights", (hidden, gates, hidden)),
            ("scales", (gates, hidden)), ("points", (gates, hidden)), ("dst", (steps, batch, hidden)),
            ("dst_iter_c", (batch, hidden)),
        ):  # fmt: skip
            desc = getattr(self, name)
            require(desc is None or desc.dims == dims, name, f"expect {dims}, got {desc.dims if desc else None}")
        for name, dtype in (("weights", "s8"), ("points", "s32")):
            desc = getattr(self, name)
            require(desc is None or desc.dtype == dtype, name, f"expect {dtype}, got {desc.dtype if desc else None}")
        require(
            (self.src_iter is None) == (self.src_iter_c is None), "src_iter_c", "expect both first states or neither"
        )

    def memories(self) -> dict[int, MemoryDesc]:
        places = {
            Arg.SRC: self.src, Arg.SRC_1: self.src_iter, Arg.SRC_2: self.src_iter_c, Arg.WEIGHTS: self.weights,
            Arg.SCALE: self.scales, Arg.SHIFT: self.points, Arg.DST: self.dst, Arg.DST_1: self.dst_iter_c,
        }  # fmt: skip
        return {arg: desc for arg, desc in places.items() if desc is not None}
