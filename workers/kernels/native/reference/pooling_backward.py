"""Collect the gradients of a pooling's src; an item is an element of it, which asks every window that sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...codes import POOLING
from ..compiler import types
from .data_types import load
from .epilogue import finish
from .tensor import at, base, dim, dtype, rank
from .window import kernel_size, positions, seen_positions, tap_back

MAX = POOLING["max"]
WHOLE = POOLING["avg_include_padding"]


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel (diff_src, diff_dst, workspace or 0, chain, window, algorithm, operands)."""

    def pooling_backward(
        begin: int, end: int, diff_src: int, diff_dst: int, workspace: int, chain: int, window: int, algorithm: int,
        operands: Any,
    ) -> None:  # fmt: skip
        axes = rank(diff_dst)
        kernel = positions(window, axes)
        for item in range(begin, end):
            total = 0.0
            for position in range(kernel):
                index, rest, seen, count = item, position, True, 1
                place, winner = base(operands, diff_dst), 0
                if workspace != 0:
                    winner = base(operands, workspace)
                for axis in range(axes - 1, 1, -1):
                    outer, further = index // dim(diff_src, axis), rest // kernel_size(window, axis)
                    there = tap_back(
                        window, axis, index - outer * dim(diff_src, axis),
                        rest - further * kernel_size(window, axis), dim(diff_dst, axis),
                    )  # fmt: skip
                    if there < 0:
                        seen = False
                    else:
                        place += at(diff_dst, axis, there)
                        if workspace != 0:
                            winner += at(workspace, axis, there)
                        else:
                            count *= seen_positions(window, axis, there, dim(diff_src, axis))
                    index, rest = outer, further
                if seen:
                    image = index // dim(diff_src, 1)
                    channel = index - image * dim(diff_src, 1)
                    error = load(place + at(diff_dst, 0, image) + at(diff_dst, 1, channel), dtype(diff_dst))
                    if algorithm == MAX:
                        winner += at(workspace, 0, image) + at(workspace, 1, channel)
                        if load(winner, dtype(workspace)) == float(position):
                            total += error
                    else:
                        total += error / float(kernel if algorithm == WHOLE else count)
            finish(operands, diff_src, chain, item, total)

    return pooling_backward, types.void(*[types.int64] * 8, types.voidptr)
