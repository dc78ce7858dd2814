"""Grids and vectors: how a number of independent items becomes an ND-range, and which vectors suit a device."""

from __future__ import annotations

from typing import Final

from ...engines.target import Target
from ..program import Launch, LaunchArgument

#: Work-items along the first dimension at most. Every dimension stays below 65472, PoCL's limit of its small-grid code.
WIDTH: Final = 32768
_LIMIT: Final = 65472
#: Work-items of one launch at most: two thousand million.
MAX_ITEMS: Final = WIDTH * _LIMIT
#: Work-group sizes: for kernels with little work an item, and for those with much.
LIGHT: Final = (64, 1)
HEAVY: Final = (8, 1)
#: Vectors of sums that a product kernel keeps in registers.
REGISTER_ROWS: Final = 8


def vector_width(target: Target) -> int:
    """Return the floats of a vector: the device's own width, and 4 for a GPU, to be worth an item's overhead."""
    width = int(dict(target.device).get("vector_width", "4"))
    return 16 if width >= 16 else 8 if width >= 8 else 4


def group(target: Target, local: tuple[int, int]) -> tuple[int, int]:
    """Return the work-group size to use: a GPU wants at least a warp."""
    return LIGHT if dict(target.device).get("type") == "GPU" else local


def launch(kernel: int, items: int, local: tuple[int, int], *args: LaunchArgument) -> Launch:
    """Return the launch of ``items`` >= 1 items, numbered through a grid of two dimensions; kernels check the number.

    Raises ValueError for more than `MAX_ITEMS`.
    """
    width = min(-(-items // local[0]) * local[0], WIDTH)
    height = -(-items // width)
    if items > MAX_ITEMS:
        raise ValueError(f"{items} work-items are more than one launch can hold")
    return Launch(kernel, args, items, (width, height), local)


def memory(arg: int) -> LaunchArgument:
    """Return the launch argument for the memory of an execution argument."""
    return ("m", (int(arg), 0))


def integers(*values: int) -> tuple[LaunchArgument, ...]:
    """Return launch arguments of whole numbers."""
    return tuple(("i", int(value)) for value in values)
