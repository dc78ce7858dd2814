"""Non-maximum suppression on native kernels: many boxes, classes and images, equal scores, boxes without an area."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, MemoryDesc, NonMaxSuppression, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references.non_max_suppression import non_max_suppression
from tests.workers.native_runner import NativeRunner

Array = NDArray[Any]


def describe(
    images: int, classes: int, size: int, most: int, centred: bool, kind: str, tag: Any = ""
) -> NonMaxSuppression:
    sources = MemoryDesc((images, size, 4), "f32", tag), MemoryDesc((images, classes, size), "f32", tag)
    rows = MemoryDesc((images * classes * most, 3), kind)
    return NonMaxSuppression(*sources, MemoryDesc((3,), "f32"), rows, MemoryDesc((1,), "s64"), most, centred)


def check(native: NativeRunner, op: NonMaxSuppression, limits: tuple[float, float, float]) -> int:
    pd = primitive_desc(op, PrimitiveAttr(), cpu_target())
    assert pd.impl_name() == "native:non_max_suppression"
    rng = np.random.default_rng()
    # Quarters: areas, and quotients that are equal to a limit of one half, are exact.
    boxes = (rng.integers(0, 40, op.boxes.dims) / 4).astype(np.float32)
    scores = (rng.integers(0, 200, op.scores.dims) / 8).astype(np.float32)
    args: dict[int, Array] = {Arg.SRC: boxes, Arg.SRC_1: scores, Arg.SRC_2: np.array(limits, np.float32)}
    got = native.results(pd, args)
    rows, count = non_max_suppression(op, *(each.astype(np.float64) for each in args.values()))
    np.testing.assert_array_equal(got[Arg.DST_1], count, str(op))
    np.testing.assert_array_equal(got[Arg.DST], rows, str(op))
    return int(count[0])


@pytest.mark.parametrize("centred", [False, True])
def test_boxes_that_overlap_a_better_one_are_left_out(native: NativeRunner, centred: bool) -> None:
    op = describe(2, 3, 90, 37, centred, ("s64", "s32")[centred], ("", "cba")[centred])
    assert 6 <= check(native, op, (30.0, 0.5, 3.0)) <= 180
    assert check(native, op, (5.9, 1.0, -1.0)) == 30
    for limits in ((0.0, 0.5, 0.0), (float("nan"), 0.5, 0.0), (9.0, 0.5, 25.0)):
        assert check(native, op, limits) == 0


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    op = describe(1, 1, 9, 9, False, "s8")
    with pytest.raises(UnsupportedPrimitive, match="indices of s8; only s32 and s64 are supported"):
        primitive_desc(op, PrimitiveAttr(), cpu_target(), references=False)
