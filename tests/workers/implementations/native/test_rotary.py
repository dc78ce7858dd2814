"""Rotary embeddings on native kernels: whole and parts of vectors of pairs, rows that share angles, elements that stay."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import Arg, MemoryDesc, PostOp, PrimitiveAttr, Rotary
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references.rotary import rotary
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner


def described(dims: tuple[int, ...], angles: tuple[int, ...], interleaved: bool, dtype: str = "f32") -> Rotary:
    src, given = MemoryDesc(dims, dtype), MemoryDesc(angles, dtype)
    return Rotary(src, given, given, src, interleaved)


@pytest.mark.parametrize("interleaved", [False, True])
def test_pairs_are_rotated(native: NativeRunner, isa: str, interleaved: bool) -> None:
    rng = np.random.default_rng()
    for dims, angles in (
        ((2, 3, 5, 64), (2, 1, 5, 32)), ((2, 3, 5, 64), (2, 3, 1, 16)), ((1, 7, 130, 128), (1, 1, 130, 64)),
        ((3, 1, 4, 37), (1, 1, 4, 18)), ((2, 2, 3, 50), (1, 2, 1, 25)), ((2, 2, 3, 5), (1, 1, 1, 1)),
        ((1, 1, 2, 9000), (1, 1, 1, 4499)), ((2, 3, 2, 7), (2, 3, 2, 0)),
    ):  # fmt: skip
        op = described(dims, angles, interleaved)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert pd.impl_name() == "native:rotary"
        src, cosine, sine = (rng.standard_normal(sizes).astype(np.float32) for sizes in (dims, angles, angles))
        got = native.results(pd, {Arg.SRC: src, Arg.SRC_1: cosine, Arg.SRC_2: sine})[Arg.DST]
        wide = src.astype(np.float64), cosine.astype(np.float64), sine.astype(np.float64)
        size = rotary(op, *map(np.abs, wide))
        size = np.maximum(size, rotary(op, np.abs(wide[0]), np.abs(wide[1]), -np.abs(wide[2])))
        # Two products, one of which is rounded, and their difference.
        assert np.all(np.abs(got - rotary(op, *wide)) <= 2.0**-23 * size), dims
        kept = 2 * angles[3]
        np.testing.assert_array_equal(got[..., kept:], src[..., kept:])


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    def refused(op: Rotary, why: str, attr: PrimitiveAttr | None = None) -> None:
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, attr or PrimitiveAttr(), cpu_target(), references=False)

    op = described((1, 2, 3, 4), (1, 1, 3, 2), False)
    refused(described((1, 2, 3, 4), (1, 1, 3, 2), False, "s32"), "only f32")
    refused(op, "post-ops", PrimitiveAttr(post_ops=(PostOp("eltwise", "relu"),)))
    blocked = MemoryDesc((1, 2, 3, 4), "f32", "acdb")
    refused(Rotary(blocked, op.cosine, op.sine, op.dst), "only row-major")
    for angles in ((1, 1, 3, 3), (1, 1, 2, 2), (1, 3, 2)):
        with pytest.raises(ValueError, match="cosine"):
            described((1, 2, 3, 4), angles, False)
    with pytest.raises(ValueError, match="sine"):
        Rotary(op.src, op.cosine, MemoryDesc((1, 1, 1, 2), "f32"), op.dst)
