"""Convolution (cross-correlation) with groups, dilation and padding a side, in any number of spatial dimensions.

Each direction is a sum over kernel positions: a position of the kernel pairs every element of dst with one of the padded
src, through one matrix a group. The gradients run the same pairs backwards.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Convolution, Deconvolution

from .windows import taps

Array = NDArray[Any]


def convolution(op: Convolution, src: Array, weights: Array, bias: Array | None) -> Array:
    """Return dst (N, OC, *spatial): the sum over kernel positions of one matrix product a group."""
    batch, outputs, *out = op.dst.dims
    grouped = _grouped(op, weights)
    result = np.zeros((batch, op.groups, outputs // op.groups, *out))
    for position, seen in _taps(op, src, tuple(out)):
        inputs = seen.reshape(batch, op.groups, weights.shape[1], *out)
        result += np.einsum("ngi...,goi->ngo...", inputs, grouped[position])
    return _biased(result.reshape(batch, outputs, *out), bias)


def convolution_backward_data(op: Convolution, weights: Array, diff_dst: Array) -> Array:
    """Return the gradient of src from that of dst."""
    return _spread(op, diff_dst, np.swapaxes(_grouped(op, weights), 1, 2), op.src.dims)


def convolution_backward_weights(op: Convolution, src: Array, diff_dst: Array) -> tuple[Array, Array]:
    """Return the gradients of weights and bias from that of dst."""
    batch, outputs, *out = op.dst.dims
    count = math.prod(out)
    errors = diff_dst.reshape(batch, op.groups, outputs // op.groups, count)
    found = np.zeros((op.groups, outputs // op.groups, *op.weights.dims[1:]))
    for position, seen in _taps(op, src, tuple(out)):
        inputs = seen.reshape(batch, op.groups, op.weights.dims[1], count)
        found[position] = np.einsum("ngip,ngop->goi", inputs, errors)
    return found.reshape(op.weights.dims), diff_dst.sum(axis=(0, *range(2, diff_dst.ndim)))


def deconvolution(op: Deconvolution, src: Array, weights: Array, bias: Array | None) -> Array:
    """Return dst (N, OC, *spatial): each element of src adds its kernel, times its value, to the window that it stands for."""
    return _biased(_spread(op, src, _grouped(op, weights), op.dst.dims), bias)


def _grouped(op: Convolution | Deconvolution, weights: Array) -> Array:
    """Return weights as (groups, OC / groups, IC / groups, *kernel)."""
    return weights.reshape(op.groups, weights.shape[0] // op.groups, *weights.shape[1:])


def _taps(op: Convolution, src: Array, out: tuple[int, ...]) -> Iterator[tuple[Any, Array]]:
    for position, seen in taps(src, out, op.weights.dims[2:], op.strides, op.dilations, op.padding_l, 0.0):
        yield (slice(None), slice(None), slice(None), *position), seen


def _spread(op: Convolution | Deconvolution, values: Array, kernels: Array, dims: tuple[int, ...]) -> Array:
    """Return a tensor of ``dims`` to which each of ``values`` adds its window: kernels (groups, to, from, *kernel)."""
    batch, channels, *spatial = values.shape
    grouped = values.reshape(batch, op.groups, channels // op.groups, *spatial)
    kernel = kernels.shape[3:]
    reach = [
        max((size - 1) * stride + (k - 1) * (dilation + 1) + 1, left + wanted)
        for size, k, stride, dilation, left, wanted in zip(
            spatial, kernel, op.strides, op.dilations, op.padding_l, dims[2:], strict=True
        )
    ]
    padded = np.zeros((batch, dims[1], *reach))
    for position in itertools.product(*map(range, kernel)):
        window: tuple[Any, ...] = tuple(
            slice(at * (dilation + 1), at * (dilation + 1) + size * stride, stride)
            for at, size, stride, dilation in zip(position, spatial, op.strides, op.dilations, strict=True)
        )
        here: tuple[Any, ...] = (..., *position)
        added = np.einsum("ngi...,goi->ngo...", grouped, kernels[here])
        padded[..., *window] += added.reshape(batch, dims[1], *spatial)
    inside: tuple[Any, ...] = tuple(slice(left, left + size) for left, size in zip(op.padding_l, dims[2:], strict=True))
    return padded[..., *inside]


def _biased(values: Array, bias: Array | None) -> Array:
    return values if bias is None else values + bias.reshape(1, -1, *(1,) * (values.ndim - 2))
