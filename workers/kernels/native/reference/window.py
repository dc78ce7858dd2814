"""Windows over spatial dimensions: the index on one side for an element of the other and a position of the kernel.

A window is described in the tables by four int64 for each spatial dimension: size of the kernel, stride, step from one
position to the next (1: dense), left padding. Spatial dimensions begin at dimension 2 of a tensor.
"""

from __future__ import annotations

from .scalars import read_s64


def kernel_size(window: int, axis: int) -> int:
    """Return the positions of the kernel along a dimension of the tensor."""
    return read_s64(window + 32 * (axis - 2))


def positions(window: int, rank: int) -> int:
    """Return the positions of the kernel in a tensor of a rank."""
    count = 1
    for axis in range(2, rank):
        count *= kernel_size(window, axis)
    return count


def tap(window: int, axis: int, index: int, position: int, size: int) -> int:
    """Return the index in src of ``size`` for an index of dst and a position of the kernel, -1 for padding."""
    entry = window + 32 * (axis - 2)
    seen = index * read_s64(entry + 8) + position * read_s64(entry + 16) - read_s64(entry + 24)
    return seen if seen < size else -1


def tap_back(window: int, axis: int, index: int, position: int, size: int) -> int:
    """Return which index of dst of ``size`` sees an index of src through a position of the kernel, -1 for none."""
    entry = window + 32 * (axis - 2)
    stride = read_s64(entry + 8)
    reach = index - position * read_s64(entry + 16) + read_s64(entry + 24)
    if reach < 0 or reach % stride != 0 or reach >= size * stride:
        return -1
    return reach // stride


def seen_positions(window: int, axis: int, index: int, size: int) -> int:
    """Return how many positions of the kernel see src of ``size``, and no padding, from an index of dst."""
    count = 0
    for position in range(kernel_size(window, axis)):
        if tap(window, axis, index, position, size) >= 0:
            count += 1
    return count
