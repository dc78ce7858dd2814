"""Operations that move a window over spatial dimensions: convolution, deconvolution, pooling, resampling."""

from __future__ import annotations

import math
from collections.abc import Sequence

from poolrt.workers.desc import MemoryDesc, OpDesc

from .products import check_bias
from .result import Attrs, Operation, describe_product, describe_result

_WINDOW = ("strides", "dilations", "padding_l", "padding_r")


def convolution(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a convolution of src, weights and an optional bias."""
    src, weights, *bias = _check_weights(srcs, attrs)
    out = _output_sizes(src.dims[2:], weights.dims[2:], attrs)
    dst = describe_product(src, dtype, (src.dims[0], weights.dims[0], *out))
    return op(src, weights, check_bias(bias, (weights.dims[0],)), dst, **attrs)


def deconvolution(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a deconvolution; ``output_padding`` chooses among the sizes that a convolution maps to src's."""
    src, weights, *bias = _check_weights(srcs, attrs)
    own = {name: value for name, value in attrs.items() if name != "output_padding"}
    dims = (
        src.dims[0],
        weights.dims[0],
        *_deconvolution_sizes(src.dims[2:], weights.dims[2:], own, attrs["output_padding"]),
    )
    dst = describe_product(src, dtype, dims)
    return op(src, weights, check_bias(bias, (weights.dims[0],)), dst, **own)


def _deconvolution_sizes(
    src: tuple[int, ...], kernel: tuple[int, ...], attrs: Attrs, extra: Sequence[int]
) -> tuple[int, ...]:
    """Return the sizes of a deconvolution's result with ``extra`` elements at the end of each spatial dimension."""
    for added, stride in zip(extra, attrs["strides"], strict=True):
        if not 0 <= added < max(stride, 1):  # a stride below 1 is refused by its name
            raise ValueError(f"output_padding: expect 0..{stride - 1}, got {tuple(extra)}")
    sizes = []
    for size, k, added, stride, dilation, left, right in zip(
        src, kernel, extra, *(attrs[name] for name in _WINDOW), strict=True
    ):
        sizes.append((size - 1) * stride + (k - 1) * (dilation + 1) + 1 - left - right + added)
    if min(sizes) < 1:
        raise ValueError(f"padding: it leaves nothing of the result {tuple(sizes)}")
    return tuple(sizes)


def pooling(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a pooling."""
    (src,) = srcs
    if src.ndims < 3:
        raise ValueError(f"src: expect (N, C, *spatial), got {src.dims}")
    kernel = attrs["kernel"]
    if len(kernel) != src.ndims - 2 or min(kernel) < 1:
        raise ValueError(f"kernel: expect {src.ndims - 2} sizes >= 1, got {tuple(kernel)}")
    dst = describe_result(src, dtype, (*src.dims[:2], *_output_sizes(src.dims[2:], kernel, attrs)))
    return op(src, dst, **attrs)


def resampling(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a resampling of the spatial dimensions to ``sizes``, or to their own times ``factors``.

    With the coordinates ``half_pixel`` the sizes alone say how far places are from one another.
    """
    (src,) = srcs
    sizes, factors = attrs["sizes"], attrs["factors"]
    spatial = src.dims[2:]
    if factors:
        scaled = [size * factor for size, factor in zip(spatial, factors, strict=False)]
        if len(factors) != len(spatial) or not all(0 < size < math.inf for size in scaled):
            raise ValueError(f"factors: expect {len(spatial)} positive numbers, got {tuple(factors)}")
        sizes = tuple(map(int, scaled))
    if len(sizes) != len(spatial) or min(sizes, default=1) < 1:
        raise ValueError(f"sizes: expect {len(spatial)} sizes >= 1, got {tuple(sizes)}")
    own = {name: value for name, value in attrs.items() if name not in ("sizes", "factors")}
    if attrs.get("coordinates", "half_pixel") != "half_pixel":
        own["factors"] = factors
    return op(src, describe_result(src, dtype, (*src.dims[:2], *sizes)), **own)


def grid_sample(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a sample of an image at the places of a grid."""
    from poolrt.workers.desc.operations.grid_sample import sampled_dims

    src, grid = srcs
    dims = sampled_dims(src, grid, attrs.get("algorithm", "linear"), attrs.get("padding", "zeros"))
    return op(src, grid, describe_result(src, dtype, dims), **attrs)


def roi_align(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe samples of an image that are pooled in parts of boxes."""
    src, boxes, images = srcs
    own = dict(attrs)
    parts = tuple(own.pop("parts"))
    if src.ndims != 4 or not boxes.ndims:
        raise ValueError(f"src, boxes: expect (N, C, H, W) and (K, 4), got {src.dims} and {boxes.dims}")
    dims = (boxes.dims[0], src.dims[1], *parts)
    return op(src, boxes, images, describe_result(src, dtype, dims), **own)


def fold(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe an image of blocks."""
    (src,) = srcs
    own = dict(attrs)
    image = tuple(own.pop("image"))
    if src.ndims != 2 + 2 * len(image):
        raise ValueError(
            f"src: expect (N, C, *kernel, *positions) with {len(image)} dimensions of each, got {src.dims}"
        )
    return op(src, describe_result(src, dtype, (*src.dims[:2], *image)), **own)


def _check_weights(srcs: Sequence[MemoryDesc], attrs: Attrs) -> Sequence[MemoryDesc]:
    src, weights = srcs[:2]
    if src.ndims < 3:
        raise ValueError(f"src: expect (N, IC, *spatial), got {src.dims}")
    if weights.ndims != src.ndims:
        raise ValueError(f"weights: expect rank {src.ndims} like src {src.dims}, got {weights.dims}")
    groups = attrs.get("groups", 1)
    if groups >= 1 and src.dims[1] % groups == 0 and weights.dims[1] * groups != src.dims[1]:
        per_group = f" in each of {groups} groups" if groups > 1 else ""
        raise ValueError(f"weights: expect {src.dims[1] // groups} input channels{per_group}, got {weights.dims[1]}")
    return srcs


def _output_sizes(sizes: tuple[int, ...], kernel: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    geometry = [attrs[name] for name in _WINDOW]
    for name, values in zip(_WINDOW, geometry, strict=True):
        if len(values) != len(sizes):
            raise ValueError(f"{name}: expect {len(sizes)} values, got {tuple(values)}")
    found = []
    for size, k, stride, dilation, left, right in zip(sizes, kernel, *geometry, strict=True):
        room = size + left + right - ((k - 1) * (dilation + 1) + 1)
        if room < 0:
            reach = tuple((k - 1) * (dilation + 1) + 1 for k, dilation in zip(kernel, geometry[1], strict=True))
            spread = "" if reach == tuple(kernel) else f", which its dilations spread over {reach}"
            raise ValueError(f"src: {sizes} with its padding is smaller than the kernel {tuple(kernel)}{spread}")
        found.append(room // max(stride, 1) + 1)
    return tuple(found)
