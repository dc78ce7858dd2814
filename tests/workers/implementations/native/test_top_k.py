"""Top k on native kernels: every data type, ties, NaN, axes of any stride."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr, TopK
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references import numpy_type
from tests.references.top_k import top_k
from tests.workers.native_runner import NativeRunner


def check(
    native: NativeRunner, dims: tuple[int, ...], dtype: str, k: int, axis: int, largest: bool, tag: Any = ""
) -> None:
    src, out = MemoryDesc(dims, dtype, tag), (*dims[:axis], k, *dims[axis + 1 :])
    kind = ("s64", "s32")[k % 2]
    op = TopK(src, MemoryDesc(out, dtype), MemoryDesc(out, kind), k, axis, largest)
    pd = primitive_desc(op, PrimitiveAttr(), cpu_target())
    assert pd.impl_name() == "native:top_k"
    rng, real = np.random.default_rng(), numpy_type(dtype)
    given = rng.integers(0, 2 if dtype == "bool" else 40, dims).astype(real)
    if real.kind not in "biu":
        given = np.where(rng.random(dims) < 0.1, np.array(np.nan, real), given - np.array(20, real))
    got = native.results(pd, {Arg.SRC: given})
    values, indices = top_k(op, given.astype(np.float64))
    np.testing.assert_array_equal(got[Arg.DST_1], indices, str(op))
    np.testing.assert_array_equal(got[Arg.DST].astype(np.float64), values, str(op))


@pytest.mark.parametrize(
    "dtype",
    [
        "f16",
        *(pytest.param(t, marks=pytest.mark.slow) for t in ("f32", "f64", "bf16", "s64", "s32", "s8", "u8", "bool")),
    ],
)
def test_the_best_come_first_and_of_equal_ones_the_first(native: NativeRunner, dtype: str) -> None:
    check(native, (7, 90), dtype, 10, 1, True)
    if dtype != "f16":
        check(native, (5, 33, 3), dtype, 33, 1, False)
        check(native, (90, 70), dtype, 1, 0, False, "ba")
        check(native, (4, 5, 6), dtype, 4, 2, True, (1000, 100, 7))


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    src, dst = MemoryDesc((2, 32), "f32"), MemoryDesc((2, 3), "f32")
    with pytest.raises(UnsupportedPrimitive, match="indices of f32"):
        primitive_desc(TopK(src, dst, dst, 3, 1), PrimitiveAttr(), cpu_target(), references=False)
