"""Strided copies: the one kernel behind reorders of plain layouts and concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument
from .grid import LIGHT, group, integers, launch, vector_width
from .layouts import merged

#: Outer dimensions that the kernel counts.
_OUTER: Final = 5


def copy_kernel(target: Target) -> KernelSpec:
    """Return the copying kernel."""
    return KernelSpec.of("copy", v=vector_width(target), post_ops=(), local=group(target, LIGHT))


def copy_dimensions(sizes: Sequence[int], source: Sequence[int], destination: Sequence[int]) -> int:
    """Return how many outer dimensions a copy needs; at most 5 can be launched."""
    return len(_shape(sizes, source, destination)[0]) - 1


def copy_fits(sizes: Sequence[int], source: Sequence[int], destination: Sequence[int]) -> bool:
    """Return whether the kernel can make a copy of these sizes and strides."""
    return copy_dimensions(sizes, source, destination) <= _OUTER


def copy_launch(
    sizes: Sequence[int],
    source: tuple[LaunchArgument, Sequence[int]],
    destination: tuple[LaunchArgument, Sequence[int]],
    target: Target,
) -> Launch:
    """Return the launch of kernel 0 that copies between two places with strides, sizes given in dst's order.

    Where no dimension of dst is contiguous, rows are single floats.
    """
    (*outer, inner), (read, write) = _shape(sizes, source[1], destination[1])
    fill = _OUTER - len(outer)
    counted = [1] * fill + outer
    from_steps, to_steps = [0] * fill + read[:-1], [0] * fill + write[:-1]
    items = prod(outer) * -(-inner // vector_width(target))
    numbers = integers(prod(outer), inner, read[-1], *counted[1:], *from_steps, *to_steps)
    return launch(0, items, group(target, LIGHT), source[0], destination[0], *numbers)


def _shape(
    sizes: Sequence[int], source: Sequence[int], destination: Sequence[int]
) -> tuple[list[int], list[list[int]]]:
    """Return merged sizes and strides whose innermost dimension is contiguous in dst."""
    kept, (read, write) = merged(sizes, source, destination)
    return (kept, [read, write]) if write[-1] == 1 else ([*kept, 1], [[*read, 1], [*write, 1]])
