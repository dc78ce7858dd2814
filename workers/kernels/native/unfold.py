"""Unfold images into rows: the windows of a convolution side by side, so that a product of matrices computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import types
from .vec import dload, dstore, fload, fstore


def make(isa: str, dtype: str = "f32") -> tuple[Callable[..., None], Any]:
    """Return the kernel for up to three spatial dimensions.

    Arguments: addresses of images (N, G C, D, H, W) and of rows (G, N, OD, OH, OW, C, KD, KH, KW), both row-major, of
    ``dtype`` f32 or f64; N, G, C; the sizes of images, of results, of windows; strides, distances between the elements of a
    window, and padding, three each. Elements outside of an image are 0. One item of work is all of (G, N, OD, OH).
    """
    load, store, zero, size = (dload, dstore, np.float64(0), 8) if dtype == "f64" else (fload, fstore, np.float32(0), 4)

    def unfold(
        begin: int, end: int, src: int, dst: int, N: int, G: int, C: int, D: int, H: int, W: int,
        OD: int, OH: int, OW: int, KD: int, KH: int, KW: int, SD: int, SH: int, SW: int,
        DD: int, DH: int, DW: int, PD: int, PH: int, PW: int,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            oh = item % OH
            od = item // OH % OD
            n = item // (OH * OD) % N
            g = item // (OH * OD * N)
            to = dst + item * OW * C * KD * KH * KW * size
            images = src + (n * G + g) * C * D * H * W * size
            for ow in range(OW):
                for i in range(C):
                    for kd in range(KD):
                        d = od * SD - PD + kd * DD
                        for kh in range(KH):
                            h = oh * SH - PH + kh * DH
                            row = images + ((i * D + d) * H + h) * W * size
                            inside = 0 <= d < D and 0 <= h < H
                            for kw in range(KW):
                                w = ow * SW - PW + kw * DW
                                if inside and 0 <= w < W:
                                    store(to, load(row + w * size))
                                else:
                                    store(to, zero)
                                to += size

    return unfold, types.void(*[types.int64] * 25)
