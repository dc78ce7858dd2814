"""Normalisations by mean and variance: over batches, layers and groups of channels, with their gradients.

What is normalised together is brought into the last dimension of a matrix, one row each; scale and shift follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, BatchNormalization, GroupNormalization, LayerNormalization
from poolrt.workers.desc.operations.normalization_flags import RMS

Array = NDArray[Any]
Normalization = BatchNormalization | LayerNormalization | GroupNormalization


def normalization(op: Normalization, args: dict[int, Array]) -> dict[int, Array]:
    """Return dst, before post-ops, and what ``op`` writes in training: statistics, workspace."""
    rows, restore = _rows(op)
    together = rows(args[Arg.SRC])
    if "use_global_stats" in op.flags:
        mean, variance = _given(args)
    elif RMS in op.flags:
        mean, variance = np.zeros((len(together), 1)), _mean_square(together)
    else:
        mean, variance = _statistics(together)
    channel = _channel_shape(op)
    dst = restore((together - mean) / np.sqrt(variance + op.epsilon))
    dst = dst * args.get(Arg.SCALE, np.ones(())).reshape(channel if Arg.SCALE in args else ())
    dst = dst + args.get(Arg.SHIFT, np.zeros(())).reshape(channel if Arg.SHIFT in args else ())
    described = op.memories()
    found: dict[int, Array] = {Arg.MEAN: mean, Arg.VARIANCE: variance}
    if "fuse_norm_relu" in op.flags:
        found[Arg.WORKSPACE] = np.where(dst <= 0, 0.0, 1.0)
        dst = np.maximum(dst, 0.0)
    found[Arg.DST] = dst
    return {int(arg): found[arg].reshape(described[arg].dims) for arg in op.outputs()}


def normalization_backward(op: BatchNormalization | LayerNormalization, args: dict[int, Array]) -> dict[int, Array]:
    """Return the gradients of src, and of scale and shift where ``op`` writes them, by the chain rule term by term."""
    rows, restore = _rows(op)
    channel = _channel_shape(op)
    diff_dst = args[Arg.DIFF_DST] * args.get(Arg.WORKSPACE, np.ones(()))
    together, (mean, variance) = rows(args[Arg.SRC]), _given(args)
    deviation = np.sqrt(variance + op.epsilon)
    errors = rows(diff_dst * args[Arg.SCALE].reshape(channel) if Arg.SCALE in args else diff_dst)
    diff_src = errors / deviation
    if "use_global_stats" not in op.flags and together.size:
        count = together.shape[1]
        diff_variance = (errors * (together - mean)).sum(axis=1, keepdims=True) * -0.5 * deviation**-3
        # The variance does not change with the mean: distances from it add up to 0.
        diff_mean = -(errors / deviation).sum(axis=1, keepdims=True) * (RMS not in op.flags)
        diff_src = diff_src + diff_variance * 2 * (together - mean) / count + diff_mean / count
    others = tuple(axis for axis, size in enumerate(channel) if axis != _channel_axis(op))
    found = {
        Arg.DIFF_SRC: restore(diff_src),
        Arg.DIFF_SCALE: (diff_dst * restore((together - mean) / deviation)).sum(axis=others),
        Arg.DIFF_SHIFT: diff_dst.sum(axis=others),
    }
    return {int(arg): found[Arg(arg)] for arg in op.outputs()}


def normalization_backward_magnitudes(
    op: BatchNormalization | LayerNormalization, args: dict[int, Array]
) -> dict[int, Array]:
    """Return the sums of the magnitudes of what the gradients are sums of."""
    rows, restore = _rows(op)
    channel = _channel_shape(op)
    diff_dst = np.abs(args[Arg.DIFF_DST])
    mean, variance = _given(args)
    deviation = np.sqrt(variance + op.epsilon)
    distances = np.abs(rows(args[Arg.SRC]) - mean) / deviation
    errors = rows(diff_dst * np.abs(args[Arg.SCALE]).reshape(channel) if Arg.SCALE in args else diff_dst)
    diff_src = errors.copy()
    if "use_global_stats" not in op.flags and errors.size:
        diff_src += errors.mean(axis=1, keepdims=True)
        diff_src += distances * (errors * distances).mean(axis=1, keepdims=True)
    others = tuple(axis for axis, size in enumerate(channel) if axis != _channel_axis(op))
    return {
        Arg.DIFF_SRC: restore(diff_src / deviation),
        Arg.DIFF_SCALE: (diff_dst * restore(distances)).sum(axis=others),
        Arg.DIFF_SHIFT: diff_dst.sum(axis=others),
    }


def _given(args: dict[int, Array]) -> tuple[Array, Array]:
    """Return mean and variance as columns; the mean of an RMS normalisation is 0."""
    variance = args[Arg.VARIANCE].reshape(-1, 1)
    return args.get(Arg.MEAN, np.zeros(variance.shape)).reshape(-1, 1), variance


def _rows(op: Normalization) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Return functions to the matrix with a row for each mean, and back."""
    dims = op.src.dims
    if isinstance(op, LayerNormalization):
        length = dims[-1]
        count = int(np.prod(dims[:-1]))
        return lambda a: a.reshape(count, length), lambda a: a.reshape(dims)
    if isinstance(op, GroupNormalization):
        count = dims[0] * op.groups
        length = dims[1] // op.groups * int(np.prod(dims[2:]))
        return lambda a: a.reshape(count, length), lambda a: a.reshape(dims)
    swapped = (dims[1], dims[0], *dims[2:])
    length = dims[0] * int(np.prod(dims[2:]))
    return (
        lambda a: np.swapaxes(a, 0, 1).reshape(dims[1], length),
        lambda a: np.swapaxes(a.reshape(swapped), 0, 1),
    )


def _statistics(together: Array) -> tuple[Array, Array]:
    """Return mean and biased variance of each row, 0 where there is nothing in it."""
    if together.shape[1] == 0:
        nothing = np.zeros((together.shape[0], 1))
        return nothing, nothing
    return together.mean(axis=1, keepdims=True), together.var(axis=1, keepdims=True)


def _mean_square(together: Array) -> Array:
    """Return the mean of squares of each row, 0 where there is nothing in it."""
    mean, variance = _statistics(together)
    return np.asarray(variance + mean**2)


def _channel_axis(op: Normalization) -> int:
    return op.src.ndims - 1 if isinstance(op, LayerNormalization) else 1


def _channel_shape(op: Normalization) -> tuple[int, ...]:
    axis = _channel_axis(op)
    return tuple(size if at == axis else 1 for at, size in enumerate(op.src.dims))
