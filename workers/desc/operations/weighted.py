"""Operations with weights: what each propagation kind reads and writes, and how channels and groups fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import require

if TYPE_CHECKING:
    from .convolution import Convolution
    from .deconvolution import Deconvolution


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


def require_channels(op: Convolution | Deconvolution) -> int:
    """Return the number of output channels. Raises ValueError naming the argument that does not fit the others."""
    rank = op.src.ndims
    require(rank >= 3 and op.weights.ndims == rank, "weights", "rank must equal the rank of src, >= 3")
    channels, outputs = op.src.dims[1], op.weights.dims[0]
    for count, name in ((channels, "channels"), (outputs, "output channels")):
        require(op.groups >= 1 and count % op.groups == 0, "groups", f"{op.groups} must divide {count} {name}")
    require(op.weights.dims[1] * op.groups == channels, "weights", f"expect {channels // op.groups} input channels")
    require(op.bias is None or op.bias.dims == (outputs,), "bias", f"expect ({outputs},)")
    return outputs
