"""pooling on native kernels."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import Arg, MemoryDesc, Pooling, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.references import numpy_type
from tests.workers.cases import Case, cases
from tests.workers.native_runner import NativeRunner


@pytest.mark.parametrize("case", [*cases("pooling"), *cases("pooling", "blocked")], ids=str)
def test_native_result_is_right(case: Case, isa: str, native: NativeRunner) -> None:
    native.check(case, isa)


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64", "s32"])
@pytest.mark.parametrize("algorithm", ["max", "avg_exclude_padding"])
def test_windows_of_each_type_and_random_size_are_numpys(dtype: str, algorithm: str, native: NativeRunner) -> None:
    rng = np.random.default_rng()
    for stride in (1, 2, 2, 3):
        height, width, pad = int(rng.integers(4, 12)), int(rng.integers(5, 140)), int(rng.integers(0, 2))
        kernel = tuple(int(size) for size in rng.integers(2, 5, 2))
        values = rng.integers(-90, 0, (2, 3, height, width)).astype(numpy_type(dtype))
        fill = -np.inf if algorithm == "max" else np.nan
        padded = np.pad(values.astype(np.float64), [(0, 0)] * 2 + [(pad, pad)] * 2, constant_values=fill)
        seen = np.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3))[:, :, ::stride, ::stride]
        exact = seen.max((4, 5)) if algorithm == "max" else np.nanmean(seen, (4, 5))
        dst = MemoryDesc(exact.shape, dtype)
        op = Pooling(
            MemoryDesc(values.shape, dtype), dst, algorithm, kernel, (stride,) * 2, (0, 0), (pad,) * 2, (pad,) * 2
        )
        pd = primitive_desc(op, PrimitiveAttr(), cpu_target())
        assert pd.impl_name() == "native:pooling"
        got = native.results(pd, {Arg.SRC: values})[Arg.DST]
        if dtype == "s32":
            np.testing.assert_array_equal(got, np.rint(exact), f"{op}")
        else:
            near = 2e-3 if dtype == "f16" else 1e-6
            np.testing.assert_allclose(got.astype(np.float64), exact, near, err_msg=f"{op}")
