"""Convolution (cross-correlation) with groups, dilation and padding a side, in any number of spatial dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Convolution

from .windows import taps

Array = NDArray[Any]


def convolution(op: Convolution, src: Array, weights: Array, bias: Array | None) -> Array:
    """Return dst (N, OC, *spatial): the sum over kernel positions of one matrix product a group."""
    batch, outputs, *out = op.dst.dims
    grouped = weights.reshape(op.groups, outputs // op.groups, *weights.shape[1:])
    result = np.zeros((batch, op.groups, outputs // op.groups, *out))
    for position, seen in taps(src, tuple(out), weights.shape[2:], op.strides, op.dilations, op.padding_l, 0.0):
        inputs = seen.reshape(batch, op.groups, weights.shape[1], *out)
        here: tuple[Any, ...] = (slice(None), slice(None), slice(None), *position)
        result += np.einsum("ngi...,goi->ngo...", inputs, grouped[here])
    result = result.reshape(batch, outputs, *out)
    return result if bias is None else result + bias.reshape(1, -1, *(1,) * len(out))
