"""What kernels have room for, and what implementations choose by. Imports nothing heavy: a warm start reads it."""

from __future__ import annotations

from typing import Final

#: Bytes that a copy of a part of src takes on the stack, at most, with what is beside it there.
ROOM: Final = 32 << 10
#: Largest stride of a deconvolution along the width: the stack has a vector for each phase.
MOST_PHASES: Final = 64
#: Pairs of inputs, and windows of a strip, that Winograd's products of integers have room for on the stack.
WINOGRAD_PAIRS: Final = 256
WINOGRAD_WINDOWS: Final = 64
#: Rows of a window that depthwise products of bytes with VNNI have side by side in each channel, a quad; channels at once; bytes
#: of their quads in a column; and bytes that the quads of an item, and those of its weights, have room for on the stack.
QUAD_ROWS: Final = 4
QUAD_CHANNELS: Final = 64
QUAD_BYTES: Final = QUAD_ROWS * QUAD_CHANNELS
QUADS_ROOM: Final = 16 << 10
QUADS_OF_WEIGHTS_ROOM: Final = 10 << 10
#: Groups of four inputs whose weights in 16 bits a product has room for on the stack.
CROSSED_GROUPS: Final = 2048
#: Bytes of rows in 16 bits, and groups of four inputs, that a product of strips of rows has room for on the stack. Rows have a
#: multiple of so many inputs.
STRIP_BYTES: Final = 128 << 10
STRIP_GROUPS: Final = 512
STRIP_INPUTS: Final = 32
#: Strides along the width that vectors are interleaved for.
INTERLEAVED: Final = (1, 2, 3, 4, 5, 6, 7, 8)
#: Bytes of scratch memory of `dynamic_lstm`: the range of a state, then its scale and its zero point.
STATE_NUMBERS: Final = 16
#: Columns that `determinant` eliminates before the others.
PANEL: Final = 8


def reach(kernel: int, stride: int, lead: int) -> tuple[int, int]:
    """Return the first and the last element of src that an element of a phase sees, from that of its position on."""
    return 1 - -(-kernel // stride), (stride - 1 + lead) // stride


def key_lanes(dtype: str) -> int:
    """Return how many keys of elements that are compared a vector holds."""
    return 8 if dtype in ("f64", "s64", "u64") else 16
