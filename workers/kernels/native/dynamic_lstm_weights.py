"""What products by the weights of a recurrent network need to know of them in all steps: sums, and whether 16 bits are enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import types
from .dynamic_lstm_tiles import make_column_sums
from .integer_dot import register_bits
from .integer_fits import hold
from .integers import store_s32


def make(isa: str, how: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of packed weights, of the sums of each channel to write (s32), and of a number (s32) for each block: 1 if
    16 bits hold the sums of two of its products (``vnni``: none is written); groups of four inputs of a block. One item of
    work is a block of 16 channels of a gate.
    """
    add_up = make_column_sums(how, 256 if how == "bytes" else register_bits(isa))
    limits = how == "bytes"

    def study(begin: int, end: int, weights: int, sums: int, fits: int, groups: int) -> None:
        for item in range(begin, end):
            at = weights + item * groups * 64
            add_up(at, sums + item * 64, groups)
            if limits:
                store_s32(fits + item * 4, hold(groups, at))

    return study, types.void(*[types.int64] * 6)
