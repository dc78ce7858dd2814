"""Softmax on native kernels."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr, Softmax
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references import numpy_type
from tests.references.softmax import softmax
from tests.workers.cases import Case, cases
from tests.workers.drawn import drawn
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner


def runs_over_images(case: Case) -> bool:
    return isinstance(case.op, Softmax) and case.op.axis == 0


BLOCKED = cases("softmax", "blocked")


@pytest.mark.parametrize("case", [*cases("softmax"), *BLOCKED], ids=str)
def test_native_result_is_right(case: Case, isa: str, native: NativeRunner) -> None:
    native.check(case, isa)


@pytest.mark.parametrize("case", [c for c in BLOCKED if runs_over_images(c)], ids=str)
def test_the_axis_of_images_is_left_to_the_reference_in_blocks_of_channels(case: Case) -> None:
    assert primitive_desc(case.op, case.attr, cpu_target()).impl_name() == "ref:softmax"
    with pytest.raises(UnsupportedPrimitive, match="axis 0"):
        primitive_desc(case.op, case.attr, cpu_target(), references=False)


@pytest.mark.parametrize("count", [1, 128, 129])
@pytest.mark.parametrize("algorithm", ["accurate", "log"])
def test_rows_of_elements_that_are_apart_are_short_or_long(
    native: NativeRunner, isa: str, algorithm: str, count: int
) -> None:
    md = MemoryDesc((2, count, 35), "f32")
    op = Softmax(md, md, 1, algorithm)
    src = np.random.default_rng().normal(0, 3, md.dims).astype(np.float32)
    src[0, 0, 3], src[1, count - 1, 34], src[0, 0, 7] = np.nan, -np.inf, 80.0
    found = native.results(primitive_desc(op, PrimitiveAttr(), target_of(isa)), {Arg.SRC: src})[Arg.DST]
    wanted = softmax(src.astype(np.float64), 1, algorithm)
    # The exponential of less than -87.3 is 0.
    np.testing.assert_allclose(found, wanted, 50 * 2.0**-23, 1e-6 if algorithm == "log" else np.exp(-87.3))


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
@pytest.mark.parametrize("algorithm", ["accurate", "log"])
@pytest.mark.one_in(3)
def test_long_rows_of_few_elements_side_by_side(native: NativeRunner, isa: str, algorithm: str, dtype: str) -> None:
    """Up to four, or 13 without AVX-512, are transposed, more are parts of vectors; rows of NaN are not their neighbours'."""
    few = 4 if isa == "x86-64-v4" else 13
    for dims in (
        (2, 129, 2),
        (3, 300, 3),
        (1, 2000, 4),
        (2, 130, 5),
        (2, 131, 13),
        (1, 133, 14),
        (2, 140, 19),
        (2, 30, 3),
    ):
        md = MemoryDesc(dims, dtype)
        op = Softmax(md, md, 1, algorithm)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert (len(pd.program().launches) > 1) is (dims[2] <= few and dims[1] > 128)
        src = np.random.default_rng().normal(0, 3, dims).astype(numpy_type(dtype))
        src[0, 5, 0], src[0, 7, 1], src[0, 11, 1] = np.nan, -np.inf, 30.0
        found = native.results(pd, {Arg.SRC: src})[Arg.DST]
        wanted = softmax(src.astype(np.float64), 1, algorithm)
        near = 2e-3 if dtype == "f16" else 50 * 2.0**-23
        np.testing.assert_allclose(found.astype(np.float64), wanted, near, near if algorithm == "log" else 1e-7)


@pytest.mark.parametrize("algorithm", ["accurate", "log"])
def test_short_rows_side_by_side(algorithm: str, isa: str, native: NativeRunner) -> None:
    rng = np.random.default_rng()
    for length in drawn(range(1, 18), 5):
        values = 9 * rng.standard_normal((int(rng.integers(1, 120)), length)).astype(np.float32)
        values[rng.random(values.shape) < 0.02] = np.nan
        values[rng.random(values.shape) < 0.02] = -np.inf
        values[:, 0] = np.where(np.isinf(values[:, 0]), 0.0, values[:, 0])
        md = MemoryDesc(values.shape, "f32")
        op = Softmax(md, md, 1, algorithm)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        if isa in ("x86-64-v3", "x86-64-v4"):
            (spec,) = pd.program().kernels
            assert (spec.generator == "softmax_short") is (length <= 16 <= values.shape[0])
        got = native.results(pd, {Arg.SRC: values})[Arg.DST]
        np.testing.assert_allclose(got, softmax(values.astype(np.float64), 1, algorithm), 3e-6, 1e-6, err_msg=f"{op}")
