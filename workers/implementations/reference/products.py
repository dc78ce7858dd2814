"""Factors of sums of products, and the convolutions that deconvolution and inner product are too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...desc import Arg, MemoryDesc, PrimitiveAttr
from ..program import LaunchArgument, Program
from .tables import Run, Step, Tables


class Window(NamedTuple):
    """A window over one spatial dimension: positions, and as `Convolution` has them."""

    kernel: int
    stride: int = 1
    dilation: int = 0
    padding: int = 0


class Tensor(NamedTuple):
    """An argument, and the shape that it is seen in: ones added behind its own dimensions."""

    arg: int
    md: MemoryDesc
    shape: tuple[int, ...]


def seen(arg: int, md: MemoryDesc, rank: int) -> Tensor:
    """Return an argument as a tensor of a rank."""
    return Tensor(arg, md, (*md.dims, *(1,) * (rank - md.ndims)))


def factor(
    tables: Tables, attr: PrimitiveAttr, tensor: Tensor, dst: Tensor, axes: Sequence[int]
) -> tuple[LaunchArgument, Step | None]:
    """Return the record of a factor and, if its scales do not vary within a sum, the step that applies them after it.

    ``axes`` says for each dimension of the factor which one of dst it is, -1 for those summed over. After the sum, scales
    do not disturb the exact sums of integers.
    """
    masks = [item.mask for item in attr.scales if item.arg == tensor.arg]
    after = all(axes[dim] >= 0 for mask in masks for dim in range(tensor.md.ndims) if mask >> dim & 1)
    record = tables.tensor(tensor.arg, tensor.md, tensor.shape, range(tensor.md.ndims), scaled=not after)
    return record, tables.scales(tensor.arg, tensor.md, dst.shape, axes) if after else None


def convolution(
    attr: PrimitiveAttr,
    src: Tensor,
    weights: Tensor,
    bias: MemoryDesc | None,
    dst: Tensor,
    window: Sequence[Window],
    groups: int = 1,
    transposed: bool = False,
    swapped: bool = False,
) -> Program:
    """Return the program that convolves ``src`` into ``dst``; see the kernel for ``transposed`` and ``swapped``."""
    tables = Tables(attr)
    spatial = (-1,) * (len(dst.shape) - 2)
    source, source_scales = factor(tables, attr, src, dst, (0, -1, *spatial))
    kernels, kernel_scales = factor(tables, attr, weights, dst, (1, -1, *spatial))
    target = tables.tensor(dst.arg, dst.md, dst.shape, range(dst.md.ndims))
    added = [tables.add(Arg.BIAS, bias, dst.shape, (1,))] if bias is not None else []
    chain = tables.chain(dst.md, (source_scales, kernel_scales, *added))
    numbers = (groups, int(transposed), int(swapped))
    args = (source, kernels, target, chain, window_table(tables, window), *(("i", n) for n in numbers))
    return tables.program("convolution", args, dst.md.elements, [(dst.arg, dst.md)])


def convolution_weights(
    attr: PrimitiveAttr,
    src: Tensor,
    weights: Tensor,
    bias: MemoryDesc | None,
    dst: Tensor,
    window: Sequence[Window],
    groups: int = 1,
) -> Program:
    """Return the program of the gradients of ``weights`` and ``bias``, for that of ``dst``."""
    tables = Tables(attr)
    source, errors = (tables.tensor(t.arg, t.md, t.shape, range(t.md.ndims)) for t in (src, dst))
    chain, table = tables.chain(weights.md), window_table(tables, window)
    last = (chain, table, ("i", groups))
    further, written = [], [(weights.arg, weights.md)]
    if bias is not None:
        gradient = tables.tensor(Arg.DIFF_BIAS, bias)
        further.append(Run("convolution_weights", (("i", 0), errors, gradient, *last), bias.elements))
        written.append((int(Arg.DIFF_BIAS), bias))
    gradient = tables.tensor(weights.arg, weights.md, weights.shape, range(weights.md.ndims))
    args = (source, errors, gradient, *last)
    return tables.program("convolution_weights", args, math.prod(weights.shape), written, further)


def window_table(tables: Tables, window: Sequence[Window]) -> LaunchArgument:
    """Add the table that kernels read a window from and return its address."""
    return tables.numbers([n for w in window for n in (w.kernel, w.stride, w.dilation + 1, w.padding)])
