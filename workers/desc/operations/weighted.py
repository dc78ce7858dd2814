"""Arguments of operations with weights: what each propagation kind reads and writes."""

from __future__ import annotations

from ..args import Arg
from ..memory_desc import MemoryDesc


def weighted(
    prop: str, src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc | None, dst: MemoryDesc
) -> dict[int, MemoryDesc]:
    """Return the memory descriptor of each execution argument of a convolution or product."""
    if prop == "backward_data":
        return {Arg.DIFF_SRC: src, Arg.WEIGHTS: weights, Arg.DIFF_DST: dst}
    if prop == "backward_weights":
        found: dict[int, MemoryDesc] = {Arg.SRC: src, Arg.DIFF_WEIGHTS: weights, Arg.DIFF_DST: dst}
        return {**found, Arg.DIFF_BIAS: bias} if bias else found
    found = {Arg.SRC: src, Arg.WEIGHTS: weights, Arg.DST: dst}
    return {**found, Arg.BIAS: bias} if bias else found
