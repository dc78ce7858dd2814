"""Flags of normalisations, and the arguments that they add."""

from __future__ import annotations

from typing import Any, Final

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import FORWARD, complete_gradients, one_of, require

FLAGS: Final = ("fuse_norm_relu", "use_global_stats", "use_scale", "use_shift")
#: The mean is 0, and the variance the mean of squares.
RMS: Final = "rms_norm"


def require_normalization(op: Any, known: tuple[str, ...] = FLAGS, backward: bool = True) -> None:
    """Normalise the flags and raise ValueError naming the argument unless a normalisation's arguments make sense."""
    one_of("prop", op.prop, (*FORWARD, "backward_data", "backward") if backward else FORWARD)
    for flag in op.flags:
        one_of("flags", flag, known)
    object.__setattr__(op, "flags", tuple(sorted(set(op.flags))))
    require(op.src.dims == op.dst.dims, "dst", f"expect {op.src.dims}, got {op.dst.dims}")
    require(op.epsilon >= 0.0, "epsilon", f"must not be negative, got {op.epsilon}")
    if backward:
        complete_gradients(op)


def normalization_memories(op: Any, statistics: MemoryDesc, channel: MemoryDesc) -> dict[int, MemoryDesc]:
    """Return the memory descriptor of each execution argument of a normalisation.

    Statistics are read with ``use_global_stats`` and backward, written in training, and not to be seen else. There is no mean
    with ``rms_norm``.
    """
    found: dict[int, MemoryDesc] = {Arg.SRC: op.src}
    if "use_global_stats" in op.flags or op.prop != "forward_inference":
        if RMS not in op.flags:
            found[Arg.MEAN] = statistics
        found[Arg.VARIANCE] = statistics
    affine = {Arg.SCALE: "use_scale" in op.flags, Arg.SHIFT: "use_shift" in op.flags and op.is_forward}
    found |= {arg: channel for arg, used in affine.items() if used}
    if op.is_forward:
        found[Arg.DST] = op.dst
    else:
        found |= {Arg.DIFF_SRC: op.diff_src, Arg.DIFF_DST: op.diff_dst}
    if op.prop == "backward":
        gradients = {Arg.DIFF_SCALE: "use_scale" in op.flags, Arg.DIFF_SHIFT: "use_shift" in op.flags}
        found |= {arg: channel for arg, used in gradients.items() if used}
    if "fuse_norm_relu" in op.flags and op.prop != "forward_inference":
        found[Arg.WORKSPACE] = MemoryDesc(op.src.dims, "u8", op.src.tag, op.src.strides)
    return found


def normalization_outputs(op: Any) -> tuple[int, ...]:
    """Return the statistics that a normalisation writes."""
    if not op.is_training or "use_global_stats" in op.flags:
        return ()
    return (Arg.VARIANCE,) if RMS in op.flags else (Arg.MEAN, Arg.VARIANCE)
