"""Launches of the kernel that copies a tensor into another, for reorder, concat and shuffle."""

from __future__ import annotations

import math

from ...desc import Arg, MemoryDesc, PrimitiveAttr
from .tables import Run, Tables


def copy(
    tables: Tables,
    attr: PrimitiveAttr,
    arg: int,
    src: MemoryDesc,
    dst: MemoryDesc,
    axis: int = 0,
    first: int = 0,
    group: int = 1,
    wraps: bool = False,
) -> Run:
    """Return the launch that copies argument ``arg`` to dst, along ``axis`` from index ``first`` on.

    Integers that become others saturate, or lose high bits if the copy ``wraps``. With a ``group``, index a of the axis goes
    to first + a % group * (size // group) + a // group.
    """
    records = tables.tensor(arg, src), tables.tensor(Arg.DST, dst), tables.chain(dst)
    inner = math.prod(src.dims[axis + 1 :])
    src_axis, dst_axis = (md.dims[axis] if md.ndims else 1 for md in (src, dst))
    plain = attr.is_plain and not attr.post_ops
    numbers = (int(plain) * (2 if wraps else 1), src_axis, dst_axis, inner, first, group, src_axis // group)
    return Run("copy", (*records, *(("i", number) for number in numbers)), src.elements)
