"""Execution arguments, with oneDNN's numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Arg(IntEnum):
    """The role of a memory in a primitive. Recurrent operations use SRC as src_layer, SRC_1 as src_iter, and so on."""

    SRC = 1
    SRC_1 = 2
    SRC_2 = 3
    DST = 17
    DST_1 = 18
    DST_2 = 19
    WEIGHTS = 33
    WEIGHTS_1 = 34
    WEIGHTS_2 = 35
    BIAS = 41
    MEAN = 49
    VARIANCE = 50
    SCALE = 51
    SHIFT = 52
    WORKSPACE = 64
    SCRATCHPAD = 80
    DIFF_SRC = 129
    DIFF_DST = 145
    DIFF_WEIGHTS = 161
    DIFF_BIAS = 169
    DIFF_SCALE = 255
    DIFF_SHIFT = 256
    MULTIPLE_SRC = 1024
    MULTIPLE_DST = 2048
    ATTR_SCALES = 4096
    ATTR_ZERO_POINTS = 8192
    POST_OP = 16384


#: Sources of a sum or concat: further ones would have the arguments of scales.
MOST_SOURCES: Final = Arg.ATTR_SCALES - Arg.MULTIPLE_SRC
#: Sources of a call, and its results: further ones would have each other's arguments.
MOST_OF_CALL: Final = Arg.MULTIPLE_DST - Arg.MULTIPLE_SRC


def multiple_src(index: int) -> int:
    """Return the argument of source ``index`` of a sum, concat or call."""
    return Arg.MULTIPLE_SRC + index


def multiple_dst(index: int) -> int:
    """Return the argument of result ``index`` of a call."""
    return Arg.MULTIPLE_DST + index


def post_op_src(index: int) -> int:
    """Return the argument of the second source of the binary post-op at ``index`` in the chain."""
    return Arg.POST_OP * (index + 1) | Arg.SRC_1


def scales_of(arg: int) -> int:
    """Return the argument that holds the scales of argument ``arg``."""
    return Arg.ATTR_SCALES | arg


def zero_points_of(arg: int) -> int:
    """Return the argument that holds the zero points of argument ``arg``."""
    return Arg.ATTR_ZERO_POINTS | arg


def argument_name(arg: int, written: bool = False) -> str:
    """Return an argument's name: ``src``, ``multiple_src 2``, ``scales of weights``, ``post_op 0 src_1``.

    The sources of a long sum have the numbers of a call's results: ``written`` says which of them it is.
    """
    if written and arg >= Arg.MULTIPLE_DST:
        return f"multiple_dst {arg - Arg.MULTIPLE_DST}"
    if arg >= Arg.POST_OP:
        return f"post_op {arg // Arg.POST_OP - 1} {argument_name(arg % Arg.POST_OP)}"
    for base, what in ((Arg.ATTR_ZERO_POINTS, "zero points of "), (Arg.ATTR_SCALES, "scales of ")):
        if arg & base:
            return what + argument_name(arg & ~base)
    if arg >= Arg.MULTIPLE_SRC:
        return f"multiple_src {arg - Arg.MULTIPLE_SRC}"
    return Arg(arg).name.lower()
