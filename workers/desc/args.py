"""Execution arguments, with oneDNN's numbers."""

from __future__ import annotations

from enum import IntEnum


class Arg(IntEnum):
    """What a memory is to a primitive."""

    SRC = 1
    SRC_1 = 2
    DST = 17
    WEIGHTS = 33
    BIAS = 41
    MEAN = 49
    VARIANCE = 50
    SCALE = 51
    SHIFT = 52
    SCRATCHPAD = 80
    MULTIPLE_SRC = 1024
    POST_OP = 16384


def multiple_src(index: int) -> int:
    """Return the argument of source ``index`` of a sum or concat."""
    return Arg.MULTIPLE_SRC + index


def post_op_src(index: int) -> int:
    """Return the argument of the second source of the binary post-op at ``index`` in the chain."""
    return Arg.POST_OP * (index + 1) | Arg.SRC_1
