"""Operators that move a window over spatial dimensions: convolution and pooling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..call import NodeCall, Operator
from ..tensors import Operand, Tensors, array_dtype, dtype_of
from .pool_indices import max_indices

#: Elements of a block, each of which is a channel.
_MOST_BLOCK: Final = 1024
#: Windows of a convolution at most for each element of the source of a transposed one of the same result.
_MORE_WINDOWS: Final = 1.15


def convolution(call: NodeCall) -> Operand:
    """Convert dilations: 1 is dense in ONNX, 0 here."""
    kernel = call.shape(1)[2:]
    window, _ = window_of(call, kernel)
    bias = call.tensor(2) if call.has(2) else None
    groups = call.integer("group", 1)
    return call.graph.convolution(
        call.math.value(call.real(0)), call.real(1), bias, groups=groups, name=call.name, **window
    )


def max_pooling(call: NodeCall) -> tuple[Operand, ...]:
    """Pool the maximum; padding never is one."""
    kernel = call.integers("kernel_shape")
    window, _ = window_of(call, kernel)
    counts = _counts(call, kernel, window)
    if 0 in counts:
        none = call.math.empty(counts, call.operand(0))
        return none, call.math.empty(counts, np.zeros((), np.int64))
    source = call.tensor(0)
    pooled = call.graph.pooling(call.math.value(source), "max", kernel, name=call.name, **window)
    return (pooled, max_indices(call, source, kernel, counts[2:], window)) if 1 in call.outputs else (pooled,)


def average_pooling(call: NodeCall) -> Operand:
    """Pool the average; elements that ceil_mode adds after the padding never count, even if padding does."""
    kernel = call.integers("kernel_shape")
    window, added = window_of(call, kernel)
    counts = bool(call.integer("count_include_pad", 0))
    padded = any(before or after for before, after in window["padding"])
    algorithm = "avg_include_padding" if counts or not padded else "avg_exclude_padding"
    dims = _counts(call, kernel, window)
    if 0 in dims:
        return call.math.empty(dims, call.operand(0))
    source = call.tensor(0)
    pooled = call.graph.pooling(call.math.value(source), algorithm, kernel, name=call.name, **window)
    return call.math.binary(pooled, _cut_windows(call, kernel, window, pooled), "mul") if counts and added else pooled


def _cut_windows(call: NodeCall, kernel: tuple[int, ...], window: Mapping[str, Any], pooled: Operand) -> Operand:
    """Return for each window its number of elements over that of elements which are not behind the padding."""
    found, sizes, pads = (
        np.ones((1, 1, *(1 for _ in kernel))),
        call.shape(0)[2:],
        call.integers("pads", (0,) * 2 * len(kernel)),
    )
    for axis, (size, count) in enumerate(zip(sizes, pooled.shape[2:], strict=True)):
        starts = np.arange(count)[:, None] * window["strides"][axis]
        places = starts + np.arange(kernel[axis]) * (window["dilations"][axis] + 1)
        inside = (places < size + pads[axis] + pads[axis + len(kernel)]).sum(1)
        found = found * (kernel[axis] / inside).reshape(
            [-1 if each == axis + 2 else 1 for each in range(len(kernel) + 2)]
        )
    return call.folding.cast(found, array_dtype(dtype_of(pooled)))


def global_pooling(algorithm: str) -> Operator:
    """Return the operator that pools all spatial dimensions to 1."""

    def operator(call: NodeCall) -> Operand:
        return call.graph.pooling(call.math.value(call.tensor(0)), algorithm, call.shape(0)[2:], name=call.name)

    return operator


def global_lp_pooling(call: NodeCall) -> Operand:
    """Return the norm over all spatial dimensions."""
    source = call.real(0)
    axes = range(2, len(source.shape))
    return call.math.reduce(source, "norm_lp_sum", tuple(axes), True, float(call.number("p", 2)))


def lp_pooling(call: NodeCall) -> Operand:
    """Pool the norm: the root of the sum of powers, a mean times the number of elements."""
    kernel = call.integers("kernel_shape")
    order = float(call.number("p", 2))
    window, _ = window_of(call, kernel)
    m, dims = call.math, _counts(call, kernel, window)
    if 0 in dims:
        return m.empty(dims, call.operand(0))
    source = call.real(0)
    square = order == 2.0
    powers = m.eltwise(source, "square") if square else m.eltwise(m.eltwise(source, "abs"), "pow", 1.0, order)
    pooled = call.graph.pooling(m.value(powers), "avg_include_padding", kernel, name=call.name, **window)
    total = m.eltwise(pooled, "linear", float(math.prod(kernel)))
    return m.eltwise(total, "sqrt") if square else m.eltwise(total, "pow", 1.0, 1.0 / order)


def transposed_convolution(call: NodeCall) -> Operand:
    """Turn the weights, whose first dimension is that of the source's channels, and find the padding of a given shape."""
    source, weights = call.real(0), call.real(1)
    count, groups = len(source.shape) - 2, call.integer("group", 1)
    if count < 1 or len(weights.shape) != count + 2 or groups < 1 or weights.shape[0] % groups:
        raise call.malformed(f"shapes {tuple(source.shape)} and {tuple(weights.shape)} do not fit {groups} groups")
    kernel, sizes = weights.shape[2:], source.shape[2:]
    strides, dilations = call.integers("strides", (1,) * count), call.integers("dilations", (1,) * count)
    extra = call.integers("output_padding", (0,) * count)
    pads = call.integers("pads", (0,) * 2 * count)
    if not len(strides) == len(dilations) == len(extra) == count or len(pads) != 2 * count:
        raise call.malformed(f"strides, dilations, pads and output_padding do not fit {count} spatial dimensions")
    _require_steps(call, strides, dilations)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    full = [(size - 1) * s + r + e for size, s, r, e in zip(sizes, strides, reach, extra, strict=True)]
    auto = call.text("auto_pad", "NOTSET")
    before, after = list(pads[:count]), list(pads[count:])
    wanted: tuple[int, ...] | None = None
    if "output_shape" in call.attrs:
        wanted = call.integers("output_shape")[-count:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(size * s for size, s in zip(sizes, strides, strict=True))
    elif auto == "VALID":
        before, after = [0] * count, [0] * count
    if wanted is not None:
        if any(w - f >= s for f, w, s in zip(full, wanted, strides, strict=True)):
            raise call.malformed(f"output_shape {wanted} is a stride or more beyond the result {tuple(full)}")
        total = [max(f - w, 0) for f, w in zip(full, wanted, strict=True)]
        # What the shape asks for beyond the full result has no element of the source: zeros, and the bias.
        extra = tuple(e + max(w - f, 0) for e, f, w in zip(extra, full, wanted, strict=True))
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        before, after = (small, large) if auto == "SAME_UPPER" else (large, small)
    inputs, outputs = weights.shape[:2]
    m = call.math
    apart = m.reshape(weights, (groups, inputs // groups, outputs, *kernel))
    turned = m.reshape(
        m.transpose(apart, (0, 2, 1, *range(3, 3 + count))), (groups * outputs, inputs // groups, *kernel)
    )
    bias = call.real(2) if call.has(2) else None
    padding = _as_convolution(weights, sizes, strides, reach, before, after)
    if padding is not None and not any(extra):
        axes = range(2, 2 + count)
        flipped = m.slice(turned, [-1] * count, [-1 - k for k in kernel], axes, [-1] * count)
        return call.graph.convolution(
            m.value(source), m.value(flipped), bias, dilations=[d - 1 for d in dilations], groups=groups, padding=padding,
            name=call.name,
        )  # fmt: skip
    return call.graph.deconvolution(
        m.value(source), turned, bias, strides=strides, dilations=[d - 1 for d in dilations], groups=groups,
        padding=list(zip(before, after, strict=True)), output_padding=extra, name=call.name,
    )  # fmt: skip


def _as_convolution(
    weights: Operand, sizes: Sequence[int], strides: Sequence[int], reach: Sequence[int], before: Sequence[int],
    after: Sequence[int],
) -> list[tuple[int, int]] | None:  # fmt: skip
    """Return the padding of the convolution with flipped weights that has the same result, unless it would be slower.

    It adds up where it multiplies. Its windows are as many as the elements of the result, which may be more than those of the
    source, and weights that are known only at run time would be flipped in each.
    """
    padding = [(r - 1 - b, r - 1 - a) for r, b, a in zip(reach, before, after, strict=True)]
    results = math.prod(size + b + a - r + 1 for size, r, (b, a) in zip(sizes, reach, padding, strict=True))
    if not isinstance(weights, np.ndarray) or set(strides) != {1} or min(map(min, padding)) < 0:
        return None
    return padding if 0 < results <= _MORE_WINDOWS * math.prod(sizes) else None


def window_of(call: NodeCall, kernel: tuple[int, ...]) -> tuple[dict[str, Any], bool]:
    """Return strides, dilations (0 is dense) and padding, and whether ceil_mode added to the padding."""
    count = len(kernel)
    sizes = call.shape(0)[2:]
    strides = call.integers("strides", (1,) * count)
    dilations = call.integers("dilations", (1,) * count)
    pads = call.integers("pads", (0,) * 2 * count)
    if not len(sizes) == len(strides) == len(dilations) == count or len(pads) != 2 * count:
        raise call.malformed(f"kernel, strides, dilations and pads do not fit {count} spatial dimensions")
    _require_steps(call, strides, dilations)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    padding = list(zip(pads[:count], pads[count:], strict=True))
    auto = call.text("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        padding = [_same(*each, upper=auto == "SAME_UPPER") for each in zip(sizes, reach, strides, strict=True)]
    elif auto == "VALID":
        padding = [(0, 0)] * count
    elif auto != "NOTSET":
        raise call.malformed(f"unknown auto_pad {auto!r}")
    added = False
    if call.integer("ceil_mode", 0) and auto == "NOTSET":
        given, padding = padding, [_round_up(*each) for each in zip(sizes, reach, strides, padding, strict=True)]
        added = any(new > old for (_, old), (_, new) in zip(given, padding, strict=True))
    return {"strides": strides, "dilations": [d - 1 for d in dilations], "padding": padding}, added


def _require_steps(call: NodeCall, strides: Sequence[int], dilations: Sequence[int]) -> None:
    for name, numbers in (("strides", strides), ("dilations", dilations)):
        if min(numbers, default=1) < 1:
            raise call.malformed(f"{name}: expect numbers of at least 1, got {tuple(numbers)}")


def _counts(call: NodeCall, kernel: tuple[int, ...], window: Mapping[str, Any]) -> tuple[int, ...]:
    """Return batch, channels and the number of windows along each dimension: 0 if one window is less than a step too long.

    So ONNX's formula has it. Of a longer one the number is negative, which no shape has.
    """
    batch, channels, *sizes = call.shape(0)
    geometry = zip(sizes, kernel, window["strides"], window["dilations"], window["padding"], strict=True)
    counts = [
        (size + before + after - (k - 1) * (dilation + 1) - 1) // stride + 1
        for size, k, stride, dilation, (before, after) in geometry
    ]
    return batch, channels, *counts


def _same(size: int, reach: int, stride: int, *, upper: bool) -> tuple[int, int]:
    """Return the padding that makes ceil(size / stride) windows; the larger half comes after (upper) or before."""
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    small, large = total // 2, total - total // 2
    return (small, large) if upper else (large, small)


def _round_up(size: int, reach: int, stride: int, padding: tuple[int, int]) -> tuple[int, int]:
    """Return the padding with room for a last window that is cut, unless that starts in the padding after src."""
    before, after = padding
    windows = -(-(size + before + after - reach) // stride) + 1
    if (windows - 1) * stride >= size + before:
        windows -= 1
    return before, max(0, (windows - 1) * stride + reach - size - before)


def columns_to_image(call: NodeCall) -> Operand:
    """Add up the blocks of an image.

    On devices, it is a transposed convolution in which each element of a block is a channel of its own.
    """
    source, m = call.real(0), call.math
    image, block = call.known_integers(1, "image_shape"), call.known_integers(2, "block_shape")
    count = len(block)
    dilations, strides = call.integers("dilations", (1,) * count), call.integers("strides", (1,) * count)
    pads = call.integers("pads", (0,) * 2 * count)
    if (
        not 1 <= count == len(image) == len(dilations) == len(strides)
        or len(pads) != 2 * count
        or len(source.shape) != 3
    ):
        raise call.malformed("image_shape, block_shape, dilations, strides and pads do not fit")
    if min((*image, *block, *dilations, *strides)) < 1 or math.prod(block) > _MOST_BLOCK:
        raise call.malformed("expect sizes of at least 1")
    reach = [(k - 1) * d + 1 for k, d in zip(block, dilations, strict=True)]
    padded = [size + pads[axis] + pads[axis + count] for axis, size in enumerate(image)]
    counts = [(size - r) // s + 1 for size, r, s in zip(padded, reach, strides, strict=True)]
    batch, width, places = source.shape
    elements = math.prod(block)
    if width % elements or math.prod(counts) != places:
        raise call.malformed(f"{width} x {places} elements are no blocks of {block} in an image of {image}")
    channels = width // elements
    if tuple(strides) == tuple(block) and not any(pads) and max(dilations) == 1:
        return _side_by_side(m, source, (batch, channels), block, counts, image)
    if call.graph.engine == "cpu" and count <= 3:
        blocks = m.reshape(source, (batch, channels, *block, *counts))
        return call.graph.fold(
            m.value(blocks), image, strides=strides, padding=pads[:count], dilations=[each - 1 for each in dilations],
            name=call.name,
        )  # fmt: skip
    rest = [(size - r) % s for size, r, s in zip(padded, reach, strides, strict=True)]
    one = np.eye(elements, dtype=np.float32).reshape(1, elements, *block)
    call.folding.book((channels, elements, elements), np.dtype(np.float32))
    weights = np.repeat(one, channels, 0)
    return call.graph.deconvolution(
        m.value(m.reshape(source, (batch, width, *counts))), m.cast(weights, dtype_of(source)), None, strides=strides,
        dilations=[each - 1 for each in dilations], groups=channels, output_padding=rest,
        padding=[(pads[axis], pads[axis + count]) for axis in range(count)], name=call.name,
    )  # fmt: skip


def _side_by_side(
    m: Tensors,
    source: Operand,
    outer: tuple[int, int],
    block: Sequence[int],
    counts: Sequence[int],
    image: Sequence[int],
) -> Operand:
    """Return the image of blocks that do not overlap, with zeros behind the last ones."""
    count = len(block)
    apart = m.reshape(source, (*outer, *block, *counts))
    order = [axis for each in range(count) for axis in (2 + count + each, 2 + each)]
    covered = [many * size for many, size in zip(counts, block, strict=True)]
    found = m.reshape(m.transpose(apart, (0, 1, *order)), (*outer, *covered))
    after = [0, 0, *(size - part for size, part in zip(image, covered, strict=True))]
    return m.pad_constant(found, [0] * len(after), after, m.number(0, source)) if any(after) else found


OPERATORS: Final[Mapping[str, Operator]] = {
    "Conv": convolution,
    "MaxPool": max_pooling,
    "AveragePool": average_pooling,
    "GlobalAveragePool": global_pooling("avg_include_padding"),
    "GlobalMaxPool": global_pooling("max"),
    "Col2Im": columns_to_image,
    "ConvTranspose": transposed_convolution,
    "LpPool": lp_pooling,
    "GlobalLpPool": global_lp_pooling,
}
