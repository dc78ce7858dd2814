"""Blocks of an image on native kernels: strips of rows, strides by phases, and images that blocks leave or do not fill."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Fold, MemoryDesc, PostOp, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from poolrt.workers.implementations.program import Launch
from tests.references.fold import fold
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner
from tests.workers.support.regions import described_fold


def drawn(rng: np.random.Generator) -> Fold:
    """Return a descriptor of one to three dimensions."""
    count = int(rng.integers(1, 4))

    def several(least: int, most: int) -> tuple[int, ...]:
        return tuple(int(each) for each in rng.integers(least, most, count))

    # Rows of parts of a vector, of one and of several.
    positions = (*several(1, 5)[1:], int(rng.integers(1, 70)))
    window = several(1, 4), several(0, 3), several(0, 4)
    image = (*several(1, 12)[1:], int(rng.integers(1, 150))) if rng.random() < 0.5 else None
    if image is None:
        window = window[0], window[1], (0,) * count
    outer = (int(rng.integers(1, 3)), int(rng.integers(1, 4)))
    return described_fold(outer, several(1, 4), positions, window, image, ("f32", "f64")[int(rng.integers(2))])


def test_blocks_are_added_at_their_places(native: NativeRunner, isa: str) -> None:
    rng = np.random.default_rng()
    for _ in range(40):
        op = drawn(rng)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert pd.impl_name() == "native:fold"
        # Sums of small integers are exact.
        src = rng.integers(-99, 100, op.src.dims).astype({"f32": np.float32, "f64": np.float64}[op.src.dtype])
        found = native.results(pd, {int(Arg.SRC): src})[Arg.DST].reshape(op.dst.dims)
        np.testing.assert_array_equal(found, fold(op, src), err_msg=str(op))


def test_images_of_several_strips(native: NativeRunner, isa: str) -> None:
    rng = np.random.default_rng(4)
    for strides in ((1, 1), (2, 1), (3, 2)):
        op = described_fold((1, 2), (3, 3), (37, 150), (strides, (0, 1), (1, 2)))
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        (launch,) = pd.program().launches
        assert isinstance(launch, Launch)
        assert launch.work > 4
        src = rng.integers(-99, 100, op.src.dims).astype(np.float32)
        found = native.results(pd, {int(Arg.SRC): src})[Arg.DST].reshape(op.dst.dims)
        np.testing.assert_array_equal(found, fold(op, src))


def test_infinities_and_nan_are_added_where_they_are(native: NativeRunner, isa: str) -> None:
    op = described_fold((1, 1), (3,), (40,), ((1,), (0,), (1,)))
    src = np.ones(op.src.dims, np.float32)
    src[0, 0, 1, 7], src[0, 0, 0, 20], src[0, 0, 2, 18] = np.nan, np.inf, -np.inf
    found = native.results(primitive_desc(op, PrimitiveAttr(), target_of(isa)), {int(Arg.SRC): src})[Arg.DST]
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found.reshape(op.dst.dims), fold(op, src))


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    def refused(op: Fold, why: str, attr: PrimitiveAttr | None = None) -> None:
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, attr or PrimitiveAttr(), cpu_target(), references=False)

    window = ((1,), (0,), (0,))
    refused(described_fold((1, 1), (3,), (4,), window, dtype="s32"), "s32 to s32")
    refused(
        described_fold((1, 1), (3,), (4,), window), "post-ops", PrimitiveAttr(post_ops=(PostOp("eltwise", "relu"),))
    )
    with pytest.raises(ValueError, match="strides: expect 1 numbers of at least 1"):
        described_fold((1, 1), (3,), (4,), ((0,), (0,), (0,)), (9,))
    with pytest.raises(ValueError, match="src: expect"):
        Fold(MemoryDesc((1, 2, 3, 4), "f32"), MemoryDesc((1, 2, 3, 4), "f32"), (1, 1), (0, 0), (0, 0))
