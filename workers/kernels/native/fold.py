"""Fold rows into images: each element is the sum of all places to which `unfold` copies it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compiler import types
from .vec import dload, dstore, fload, fstore


def make(isa: str, dtype: str = "f32") -> tuple[Callable[..., None], Any]:
    """Return the kernel; it takes the arguments of `unfold`, but writes the first address and reads the second.

    One item of work is all of (N, G C, D, H).
    """
    load, store, nbytes = (dload, dstore, 8) if dtype == "f64" else (fload, fstore, 4)

    def fold(
        begin: int, end: int, dst: int, src: int, N: int, G: int, C: int, D: int, H: int, W: int,
        OD: int, OH: int, OW: int, KD: int, KH: int, KW: int, SD: int, SH: int, SW: int,
        DD: int, DH: int, DW: int, PD: int, PH: int, PW: int,
    ) -> None:  # fmt: skip
        size = KD * KH * KW
        for item in range(begin, end):
            h = item % H
            d = item // H % D
            i = item // (H * D) % C
            g = item // (H * D * C) % G
            n = item // (H * D * C * G)
            for w in range(W):
                total = 0.0
                for kd in range(KD):
                    from_d = d + PD - kd * DD
                    if from_d % SD or not 0 <= from_d < OD * SD:
                        continue
                    for kh in range(KH):
                        from_h = h + PH - kh * DH
                        if from_h % SH or not 0 <= from_h < OH * SH:
                            continue
                        for kw in range(KW):
                            from_w = w + PW - kw * DW
                            if from_w % SW or not 0 <= from_w < OW * SW:
                                continue
                            row = (((g * N + n) * OD + from_d // SD) * OH + from_h // SH) * OW + from_w // SW
                            total += load(src + ((row * C + i) * size + (kd * KH + kh) * KW + kw) * nbytes)
                store(dst + (item * W + w) * nbytes, total)

    return fold, types.void(*[types.int64] * 25)
