"""RoiAlign on native kernels: boxes of any sizes at any places, and those of which nothing is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrt.workers.desc import Arg, MemoryDesc, PostOp, PrimitiveAttr, RoiAlign
from poolrt.workers.desc.operations.roi_align import ROI_ALGORITHMS
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references.roi_align import roi_align
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

NEAR = {"f32": 8 * 2.0**-23, "f64": 1e-14}


def described(
    src: tuple[int, ...], count: int, parts: tuple[int, int] = (2, 3), algorithm: str = "mean", samples: int = 0,
    half: bool = True, dtype: str = "f32", boxes: str = "f32", images: str = "s64",
) -> RoiAlign:  # fmt: skip
    return RoiAlign(
        MemoryDesc(src, dtype), MemoryDesc((count, 4), boxes), MemoryDesc((count,), images),
        MemoryDesc((count, src[1], *parts), dtype), algorithm, samples, 0.5, half,
    )  # fmt: skip


@pytest.mark.parametrize("algorithm", ROI_ALGORITHMS)
def test_boxes_are_pooled_wherever_they_are(native: NativeRunner, isa: str, algorithm: str) -> None:
    rng = np.random.default_rng()
    for src, count, parts, samples in (
        ((2, 70, 13, 21), 5, (2, 3), 0),
        ((1, 3, 40, 37), 9, (9, 1), 0),
        ((3, 2, 1, 1), 4, (2, 2), 0),
        ((1, 2, 9, 18), 6, (1, 17), 3),
    ):
        half, (dtype, boxes) = bool(rng.integers(2)), (("f32", "f32"), ("f64", "f64"), ("f32", "f64"))[rng.integers(3)]
        op = described(src, count, parts, algorithm, samples, half, dtype, boxes, "s64" if half else "s32")
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert pd.impl_name() == "native:roi_align"
        # Some boxes are around the image, some beside it, and one is nothing.
        ends = rng.uniform(-0.5, 1.5, (count, 2, 2)) * np.array([src[3], src[2]]) / op.scale
        ends[:-1] = np.sort(ends[:-1], 1)
        ends[0] = ends[0, :1]
        given = ends.reshape(count, 4).astype(np.float32 if boxes == "f32" else np.float64)
        values = rng.standard_normal(src).astype(np.float32 if dtype == "f32" else np.float64)
        # One box is of no image.
        numbers = np.array([src[0], *rng.integers(0, src[0], count - 1)], np.int64 if half else np.int32)
        got = native.results(pd, {Arg.SRC: values, Arg.SRC_1: given, Arg.SRC_2: numbers})[Arg.DST]
        want = roi_align(op, values, given, numbers)
        # A place of float64 is off by two units of its last place; neighbours differ by up to twice the largest value.
        near = max(NEAR[dtype], 2 * 2 * 2.0**-52 * max(src[2:]))
        np.testing.assert_allclose(got, want, 0, np.abs(values).max() * near, err_msg=str(op))


def test_boxes_that_are_no_numbers_or_have_no_end_are_zeros(native: NativeRunner) -> None:
    values = np.ones((1, 2, 8, 8), np.float32)
    ends = np.array(
        [[0, 0, np.nan, 9], [-np.inf, 0, np.inf, 9], [0, 0, 1e30, 9], [9, 9, 2, 2], [2, 2, 8, 8]], np.float32
    )
    for samples in (0, 2):
        op = described(values.shape, len(ends), samples=samples)
        given: dict[int, Any] = {Arg.SRC: values, Arg.SRC_1: ends, Arg.SRC_2: np.zeros(len(ends), np.int64)}
        found = native.results(primitive_desc(op, PrimitiveAttr(), cpu_target()), given)[Arg.DST]
        np.testing.assert_array_equal(found[:3], 0.0)
        np.testing.assert_allclose(found[4], 1.0, 1e-6)


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    def refused(op: RoiAlign, why: str, attr: PrimitiveAttr | None = None) -> None:
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, attr or PrimitiveAttr(), cpu_target(), references=False)

    refused(described((1, 2, 4, 4), 3, dtype="s32"), "s32 to s32 by boxes of f32")
    refused(described((1, 2, 4, 4), 3, images="u8"), "images of u8")
    refused(described((1, 2, 4, 4), 3, samples=2000), "more than 1024 samples")
    refused(described((1, 2, 4, 4), 3), "post-ops", PrimitiveAttr(post_ops=(PostOp("eltwise", "relu"),)))
