"""Operators that move a window over spatial dimensions: convolution and pooling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..call import NodeCall, Operand, Operator


def convolution(call: NodeCall) -> Operand:
    """Convert dilations: 1 is dense in ONNX, 0 here."""
    kernel = call.shape(1)[2:]
    window, _ = _window(call, kernel)
    bias = call.tensor(2) if call.has(2) else None
    groups = call.integer("group", 1)
    return call.graph.convolution(call.tensor(0), call.tensor(1), bias, groups=groups, name=call.name, **window)


def max_pooling(call: NodeCall) -> Operand:
    """Pool the maximum; padding never is one."""
    call.only_output("Indices")
    kernel = call.integers("kernel_shape")
    window, _ = _window(call, kernel)
    return call.graph.pooling(call.tensor(0), "max", kernel, name=call.name, **window)


def average_pooling(call: NodeCall) -> Operand:
    """Pool the average; elements that ceil_mode adds after the padding never count, even if padding does."""
    kernel = call.integers("kernel_shape")
    window, added = _window(call, kernel)
    counts = bool(call.integer("count_include_pad", 0))
    padded = any(before or after for before, after in window["padding"])
    if counts and added:
        raise call.unsupported("ceil_mode=1 with count_include_pad=1 is not supported if the last window is cut")
    algorithm = "avg_include_padding" if counts or not padded else "avg_exclude_padding"
    return call.graph.pooling(call.tensor(0), algorithm, kernel, name=call.name, **window)


def global_pooling(algorithm: str) -> Operator:
    """Return the operator that pools all spatial dimensions to 1."""

    def operator(call: NodeCall) -> Operand:
        return call.graph.pooling(call.tensor(0), algorithm, call.shape(0)[2:], name=call.name)

    return operator


def reduce_mean(call: NodeCall) -> Operand:
    """Turn the mean over all spatial dimensions into a global pooling; no other is supported."""
    ndims = len(call.shape(0))
    axes = call.axes(1)
    spatial = tuple(range(2, ndims))
    if ndims < 3 or axes is None or tuple(sorted(axis % ndims for axis in axes)) != spatial:
        raise call.unsupported("only the mean over all spatial dimensions is supported")
    pooled = call.graph.pooling(call.tensor(0), "avg_include_padding", call.shape(0)[2:], name=call.name)
    return (
        pooled if call.integer("keepdims", 1) else call.graph.squeeze(pooled, spatial, name=call.name_part("squeeze"))
    )


def _window(call: NodeCall, kernel: tuple[int, ...]) -> tuple[dict[str, Any], bool]:
    """Return strides, dilations (0 is dense) and padding, and whether ceil_mode added to the padding."""
    count = len(kernel)
    sizes = call.shape(0)[2:]
    strides = call.integers("strides", (1,) * count)
    dilations = call.integers("dilations", (1,) * count)
    pads = call.integers("pads", (0,) * 2 * count)
    if not len(sizes) == len(strides) == len(dilations) == count or len(pads) != 2 * count or min(strides) < 1:
        raise call.malformed(f"kernel, strides, dilations and pads do not fit {count} spatial dimensions")
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


OPERATORS: Final[Mapping[str, Operator]] = {
    "Conv": convolution,
    "MaxPool": max_pooling,
    "AveragePool": average_pooling,
    "GlobalAveragePool": global_pooling("avg_include_padding"),
    "GlobalMaxPool": global_pooling("max"),
    "ReduceMean": reduce_mean,
}
