"""Copy activations in blocks of 16 channels into a padded form that a convolution reads without bounds.

The columns of a strided convolution are dealt to as many phases as its stride: neighbours in a phase are neighbours for
the convolution, whatever its stride. Of slabs and rows, the kernel copies every `slab_step`-th and every `row_step`-th one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .vec import vload, vset, vstore


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of src (planes, depth, height, width, 16) and dst (planes, slabs, rows, phases, columns, 16), then
    these sizes; ``slab_step`` and ``row_step``, the source slabs and rows from one to the next; ``stride``, the source
    columns from one column to the next; and the padding ``front``, ``top`` and ``left``. One item of work is one row.
    """

    def pad(
        begin: int, end: int, src: int, dst: int, depth: int, height: int, width: int, slabs: int, rows: int, phases: int,
        columns: int, slab_step: int, row_step: int, stride: int, front: int, top: int, left: int,
    ) -> None:  # fmt: skip
        zero = vset(np.float32(0.0))
        for item in range(begin, end):
            h = (item % rows) * row_step - top
            slab = item // rows
            plane, d = slab, -front
            if slabs > 1:
                plane = slab // slabs
                d += (slab - plane * slabs) * slab_step
            source = src + ((plane * depth + d) * height + h) * width * 64
            to = dst + item * phases * columns * 64
            for phase in range(phases):
                first = columns
                last = columns
                if 0 <= h < height and 0 <= d < depth:
                    # Column q shows source column q * stride + phase - left.
                    first = min(columns, max(0, (left - phase + stride - 1) // stride))
                    last = max(first, min(columns, (width - 1 + left - phase) // stride + 1))
                for q in range(first):
                    vstore(to + q * 64, zero)
                at = source + (first * stride + phase - left) * 64
                for q in range(first, last):
                    vstore(to + q * 64, vload(at))
                    at += stride * 64
                for q in range(last, columns):
                    vstore(to + q * 64, zero)
                to += columns * 64

    return pad, types.void(*[types.int64] * 17)
