"""Non-zero on native kernels: every data type, zeros with signs, NaN, any strides, few and many elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrt.workers.desc import Arg, MemoryDesc, NonZero, PrimitiveAttr
from poolrt.workers.engines.target import host_isa
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.references import numpy_type
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner


def check(
    native: NativeRunner, given: np.ndarray[Any, Any], dtype: str, kind: str = "s64", tag: Any = "", isa: str = ""
) -> None:
    rows = MemoryDesc((given.ndim, given.size), kind)
    op = NonZero(MemoryDesc(given.shape, dtype, tag), rows, MemoryDesc((1,), kind))
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa or host_isa()))
    assert pd.impl_name() == "native:non_zero"
    got = native.results(pd, {Arg.SRC: given})
    expected = np.array(np.nonzero(given.astype(np.float64))).reshape(given.ndim, -1)
    count = expected.shape[1]
    assert got[Arg.DST_1].tolist() == [count]
    np.testing.assert_array_equal(got[Arg.DST][:, :count], expected, str(op))
    assert not got[Arg.DST][:, count:].any()


@pytest.mark.parametrize(
    "dtype",
    [
        *("f32", "u8"),
        *(pytest.param(t, marks=pytest.mark.slow) for t in ("f64", "f16", "bf16", "s64", "s32", "s8", "bool")),
    ],
)
def test_the_indices_are_numpys(native: NativeRunner, isa: str, dtype: str) -> None:
    rng, real = np.random.default_rng(), numpy_type(dtype)
    for dims in ((1,), (64,), (5, 64), (130, 7), (3, 1, 50), (2, 3, 4, 5), (300, 1), (0, 4), (1, 0)):
        for share in (0.0, 0.03, 0.5, 1.0):
            given = (rng.random(dims) < share).astype(real)
            check(native, given if dtype == "bool" else given * rng.integers(1, 100, dims).astype(real), dtype, isa=isa)


def test_only_zeros_of_both_signs_are_zeros(native: NativeRunner, isa: str) -> None:
    row = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, -1e-45, 1.0], np.float32)
    for count in (1, 7, 8):
        check(native, np.tile(row, (count, count)), "f32", isa=isa)


def test_any_strides_and_short_indices(native: NativeRunner) -> None:
    rng = np.random.default_rng()
    for dims, tag in (((7, 30), "ba"), ((4, 5, 18), (1000, 100, 3)), ((2, 3, 4, 5), "acdb"), ((0, 3), "ba")):
        check(native, rng.integers(0, 2, dims).astype(np.float32), "f32", "s32", tag)
