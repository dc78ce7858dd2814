"""LSTM cells whose states are quantised before they are multiplied, in float64 but for the quantisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, DynamicLstm

from .dynamic_quantise import dynamic_quantise

Array = NDArray[Any]


def dynamic_lstm(op: DynamicLstm, args: Mapping[int, Array], states: Array | None = None) -> tuple[Array, Array]:
    """Return h of all steps (T, N, H) and the last c (N, H).

    Each step quantises h of the step before, or, so that no rounding moves a number to the next byte, that of ``states``.
    """
    src, scales, points = args[Arg.SRC].astype(np.float64), args[Arg.SCALE].astype(np.float64), args.get(Arg.SHIFT)
    steps, batch, _, hidden = src.shape
    none = np.zeros((batch, hidden))
    before, cells = (args.get(arg, none).astype(np.float64) for arg in (Arg.SRC_1, Arg.SRC_2))
    less = args[Arg.WEIGHTS].astype(np.float64) - (0.0 if points is None else points.astype(np.float64))
    results = np.zeros((steps, batch, hidden))
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(steps - 1, -1, -1) if op.backwards else range(steps):
            stored, scale, point = dynamic_quantise(before)
            sums = np.einsum("nj,jgk->ngk", stored - point, less)
            i, f, new, o = np.moveaxis(src[step] + sums * scale * scales, 1, 0)
            cells = cells / (1 + np.exp(-f)) + np.tanh(new) / (1 + np.exp(-i))
            results[step] = np.tanh(cells) / (1 + np.exp(-o))
            before = results[step] if states is None else states[step]
    return results, cells
