"""Descriptors of RoiAlign and Fold for the pages of support and for random tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from poolrt.workers.desc import Fold, MemoryDesc, OpDesc, RoiAlign
from poolrt.workers.desc.operations.roi_align import BOX_TYPES, ROI_ALGORITHMS
from tests.references.data_types import rounded
from tests.workers.desc.windows import Sizes


def roi_aligns(prop: str, dtype: str) -> list[OpDesc]:
    """Boxes have the type of src, f32 if that has no fractions."""
    shapes: tuple[tuple[Sequence[int], int, tuple[int, int], str, int, float, bool], ...] = (
        # src, boxes, parts, algorithm, samples, scale, half_pixel
        ((2, 3, 9, 11), 5, (3, 2), "mean", 0, 0.5, True), ((1, 17, 20, 37), 3, (2, 5), "mean", 2, 1.0, False),
        ((2, 2, 7, 5), 4, (10, 3), "max", 0, 1.0, True), ((3, 1, 1, 6), 6, (1, 2), "max", 3, 0.25, False),
        ((1, 70, 6, 6), 2, (2, 2), "mean", 1, 1.0, True), ((0, 2, 4, 4), 0, (2, 2), "mean", 0, 1.0, True),
    )  # fmt: skip
    found: list[OpDesc] = []
    for src, count, parts, algorithm, samples, scale, half in shapes:
        boxes = MemoryDesc((count, 4), dtype if dtype in BOX_TYPES else "f32")
        images, dst = MemoryDesc((count,), "s64" if half else "s32"), MemoryDesc((count, src[1], *parts), dtype)
        found.append(RoiAlign(MemoryDesc(tuple(src), dtype), boxes, images, dst, algorithm, samples, scale, half))
    return found


def random_roi_align(rng: random.Random) -> OpDesc:
    """Return a row-major descriptor."""
    images, channels, high, wide = (rng.choice((1, 2, 3, 5, 16, 17)) for _ in range(4))
    count, parts = rng.choice((0, 1, 3, 7)), (rng.choice((1, 2, 7)), rng.choice((1, 3, 9)))
    numbers = MemoryDesc((count,), rng.choice(("s32", "s64")))
    return RoiAlign(
        MemoryDesc((images, channels, high, wide), "f32"), MemoryDesc((count, 4), rng.choice(BOX_TYPES)), numbers,
        MemoryDesc((count, channels, *parts), "f32"), rng.choice(ROI_ALGORITHMS), rng.choice((0, 0, 1, 3)),
        rng.choice((1.0, 0.25)), rng.random() < 0.5,
    )  # fmt: skip


def region_values(op: RoiAlign, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return boxes in images and beside them, and numbers of images."""
    rng, (count, _) = np.random.default_rng(seed), op.boxes.dims
    sizes = np.array([op.src.dims[3], op.src.dims[2]] * 2) / op.scale
    boxes = np.sort(rng.uniform(-0.3, 1.2, (count, 2, 2)), 1).reshape(count, 4) * sizes
    return rounded(boxes, op.boxes.dtype), rng.integers(0, max(op.src.dims[0], 1), count)


def described_fold(
    outer: Sizes,
    kernel: Sizes,
    positions: Sizes,
    window: tuple[Sizes, Sizes, Sizes],
    image: Sizes | None = None,
    dtype: str = "f32",
) -> Fold:
    """Return a descriptor; ``window`` has strides, dilations and padding, which is on both sides unless the image is given."""
    strides, dilations, padding = window
    sizes = image or tuple(
        (o - 1) * s + (k - 1) * (d + 1) + 1 - 2 * p
        for o, k, s, d, p in zip(positions, kernel, strides, dilations, padding, strict=True)
    )
    return Fold(
        MemoryDesc((*outer, *kernel, *positions), dtype),
        MemoryDesc((*outer, *sizes), dtype),
        strides,
        dilations,
        padding,
    )


def folds(prop: str, dtype: str) -> list[OpDesc]:
    """One to three dimensions, with strides, dilations, padding, and images that blocks leave or do not fill."""
    return [
        described_fold((2, 3), (3,), (19,), ((1,), (0,), (1,)), dtype=dtype),
        described_fold((1, 2), (3, 2), (5, 18), ((1, 1), (1, 0), (1, 0)), dtype=dtype),
        described_fold((2, 1), (2, 3), (4, 9), ((2, 3), (0, 1), (0, 2)), (7, 40), dtype),
        described_fold((1, 2), (2, 2, 3), (3, 2, 5), ((1, 2, 2), (0, 1, 0), (1, 0, 1)), dtype=dtype),
        described_fold((0, 2), (2,), (3,), ((1,), (0,), (0,)), dtype=dtype),
    ]


def random_fold(rng: random.Random) -> OpDesc:
    """Return a descriptor of an image of any size."""
    count = rng.choice((1, 2, 3))
    outer, kernel, positions, image = (
        tuple(rng.choice((1, 2, 3)) for _ in range(size)) for size in (2, count, count, count)
    )
    strides, dilations, padding = (
        tuple(rng.choice(some) for _ in range(count)) for some in ((1, 2, 3), (0, 1), (0, 1, 2))
    )
    return described_fold(outer, kernel, positions, (strides, dilations, padding), image)
