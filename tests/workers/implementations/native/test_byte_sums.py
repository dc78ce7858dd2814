"""Sums of bytes along the last dimensions: exact for every length, saturated in s32."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr, Reduction
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner


def described(dims: tuple[int, ...], out: tuple[int, ...], dtype: str) -> Reduction:
    return Reduction(MemoryDesc(dims, dtype), MemoryDesc(out, "s32"), "sum")


@pytest.mark.parametrize("dtype", ["u8", "s8"])
def test_sums_of_every_length_are_exact(native: NativeRunner, dtype: str, isa: str) -> None:
    rng, kind = np.random.default_rng(), np.dtype({"u8": np.uint8, "s8": np.int8}[dtype])
    for dims, out in (
        *(((3, 5, length), (3, 5, 1)) for length in (1, 2, 15, 16, 31, 33, 63, 64, 65, 127, 128, 300)),
        ((2, 9, 7, 7), (2, 9, 1, 1)), ((1, 4, 56, 56), (1, 4, 1, 1)), ((2, 3, 5), (1, 1, 1)), ((1, 7), (1, 7)),
    ):  # fmt: skip
        op = described(dims, out, dtype)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert pd.impl_name() == "native:byte_sums", str(op)
        axes = tuple(axis for axis in range(len(dims)) if out[axis] == 1)
        limits = np.iinfo(kind)
        for given in (
            rng.integers(limits.min, limits.max + 1, dims),
            np.full(dims, limits.min),
            np.full(dims, limits.max),
        ):
            got = native.results(pd, {Arg.SRC: given})[Arg.DST]
            np.testing.assert_array_equal(got, given.sum(axis=axes, keepdims=True), str(op))


@pytest.mark.parametrize("dims", [(3, 4, 5), (6, 4)])
def test_other_dimensions_than_the_last_are_left_to_others(dims: tuple[int, ...]) -> None:
    pd = primitive_desc(described(dims, (1, *dims[1:]), "u8"), PrimitiveAttr(), cpu_target())
    assert pd.impl_name() != "native:byte_sums"
