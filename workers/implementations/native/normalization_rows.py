"""Programs of normalizations over rows that follow one another in memory."""

from __future__ import annotations

import struct
from typing import Final

from ...desc import Arg, GroupNormalization, LayerNormalization, PrimitiveAttr
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .blocks import EVERY_TYPE, LANES, refuse, refuse_different
from .chain import chain, chain_source, refuse_chain

#: Ones in place of absent scales, zeros in place of absent shifts.
NEUTRAL: Final = struct.pack(f"<{2 * LANES}f", *[1.0] * LANES, *[0.0] * LANES)


def refuse_rows(op: LayerNormalization | GroupNormalization, attr: PrimitiveAttr) -> str | None:
    """Return why the rows of an operation in its layouts cannot be normalised, or None."""
    for md in (op.src, op.dst):
        if not md.is_plain:
            return f"layout {md.tag}; only row-major is supported"
    if op.is_training and op.dst.elements == 0 and op.memories()[Arg.VARIANCE].elements:
        return "statistics of rows without elements"
    return refuse(op.src, op.dst, dtypes=EVERY_TYPE) or refuse_different(op.src, op.dst) or refuse_chain(attr, op.dst)


def normalize(
    op: LayerNormalization | GroupNormalization, attr: PrimitiveAttr, part: str, rows: int, sizes: tuple[int, ...],
    streams: bool = False, asks: bool = False,
) -> Program:  # fmt: skip
    """Return the program of one launch over ``rows``; ``sizes`` are what the kernel's part wants to know of a row.

    Rows that it ``streams`` are written past the caches; a kernel that ``asks`` prefetches the next row.
    """
    if op.dst.elements == 0:
        return Program((), ())
    memories = op.memories()

    def place(arg: Arg) -> LaunchArgument:
        return ("m", (int(arg), 0)) if arg in memories else ("i", 0)

    affine: list[LaunchArgument] = []
    for arg, neutral in ((Arg.SCALE, 0), (Arg.SHIFT, 4 * LANES)):
        affine.append(place(arg) if arg in memories else ("t", neutral))
    masks = (-int(arg in memories) for arg in (Arg.SCALE, Arg.SHIFT))
    numbers = (*masks, int("use_global_stats" in op.flags), *sizes)
    args: tuple[LaunchArgument, ...] = (
        place(Arg.SRC), place(Arg.DST), chain_source(attr), place(Arg.MEAN), place(Arg.VARIANCE), *affine,
        *(("i", number) for number in numbers), ("f", float(op.epsilon)),
    )  # fmt: skip
    centered = "rms_norm" not in op.flags
    kernel = KernelSpec.of(
        "normalization_rows",
        part=part,
        dtype=op.dst.dtype,
        chain=chain(attr),
        centered=centered,
        streams=streams,
        asks=asks,
    )
    return Program((kernel,), (Launch(0, args, rows),), tables=NEUTRAL)
