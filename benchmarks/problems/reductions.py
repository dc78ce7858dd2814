"""Reductions along dimensions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .problem import Problem


def reductions() -> Iterator[Problem]:
    """Yield reductions of rows, of columns, of images and of short runs apart."""
    for dims, axes in (
        ((128, 768), (1,)),
        ((4096, 1024), (0,)),
        ((1, 256, 56, 56), (2, 3)),
        ((8, 64, 56, 56), (0, 2, 3)),
        ((64, 100, 9), (0, 2)),
        ((8, 32, 16, 16), (1, 3)),
    ):
        for name, node in (("sum", "Sum"), ("mean", "Mean"), ("max", "Max"), ("norm_lp_sum", "L2")):
            yield Problem(
                "reduction", f"{name} along {axes}", dims,
                lambda g, x, name=name, axes=axes: g.reduction(x, name, axes),
                f"Reduce{node}", (np.array(axes, np.int64),),
            )  # fmt: skip


def arg_reductions() -> Iterator[Problem]:
    """Yield the best class of one picture and of many, the next token, and a segmentation's classes."""
    for dims, axis in (((1, 1000), 1), ((4096, 1000), 1), ((1, 50257), 1), ((1, 21, 128, 128), 1)):
        yield Problem(
            "arg_reduction", f"arg_max along {axis}", dims, lambda g, x, axis=axis: g.arg_max(x, axis), "ArgMax", (),
            {"axis": axis},
        )  # fmt: skip


def top_ks() -> Iterator[Problem]:
    """Yield the five best classes, the best 50 tokens, and sums of probabilities in their order."""
    for dims, k in (((64, 1000), 5), ((1, 50257), 50)):
        yield Problem(
            "order", f"top {k}", dims, lambda g, x, k=k: g.top_k(x, k), "TopK", (np.array([k], np.int64),), results=2
        )
    for dims, axis in (((1, 50257), 1), ((128, 768), 0)):
        yield Problem(
            "order", f"cumulative sum along {axis}", dims, lambda g, x, axis=axis: g.cumulative_sum(x, axis), "CumSum",
            (np.array(axis, np.int64),),
        )  # fmt: skip
