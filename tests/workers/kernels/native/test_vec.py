"""Vector intrinsics: each computes what its name says, at every ISA level."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from poolrt.workers.engines.object_loader import load_object
from poolrt.workers.engines.target import ISA_LEVELS
from poolrt.workers.kernels.native import exponentials, vec
from poolrt.workers.kernels.native.compiler import types
from poolrt.workers.kernels.native.first_lanes import vstore_part

from .lacking_instructions import function_for_this_host

INT = types.int64
LEVELS = tuple(ISA_LEVELS)


def run(isa: str, kernel: Callable[..., None], *arrays: np.ndarray, extra: int = 0) -> None:
    """Call ``kernel(begin, end, addresses..., extra)`` over as many vectors as the first array has."""
    signature = types.void(*[INT] * (3 + len(arrays)))
    loaded = load_object(function_for_this_host("kernel", kernel, signature, isa))
    blob = (ctypes.c_int64 * (3 + len(arrays)))(0, arrays[0].size // 16, *(a.ctypes.data for a in arrays), extra)
    ret, exc = ctypes.c_int64(), ctypes.c_void_p()
    assert loaded.function(ctypes.addressof(ret), ctypes.addressof(exc), ctypes.addressof(blob)) == 0


def map1(isa: str, function: Callable[..., object], x: np.ndarray) -> np.ndarray:
    def kernel(begin: int, end: int, src: int, dst: int, extra: int) -> None:
        for i in range(begin, end):
            vec.vstore(dst + 64 * i, function(vec.vload(src + 64 * i)))

    y = np.zeros_like(x)
    run(isa, kernel, x, y)
    return y


def map2(isa: str, function: Callable[..., object], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    def kernel(begin: int, end: int, src0: int, src1: int, dst: int, extra: int) -> None:
        for i in range(begin, end):
            vec.vstore(dst + 64 * i, function(vec.vload(src0 + 64 * i), vec.vload(src1 + 64 * i)))

    z = np.zeros_like(x)
    run(isa, kernel, x, y, z)
    return z


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    return float(np.max(np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(exact).astype(np.float32))))


@pytest.mark.parametrize("isa", LEVELS)
def test_exp_is_exact_to_one_ulp_and_ends_in_zero_and_infinity(isa: str) -> None:
    x = np.linspace(-87.0, 88.7, 1 << 16).astype(np.float32)
    assert ulps(map1(isa, exponentials.vexp, x), np.exp(x.astype(np.float64))) <= 1.01
    special = np.resize(np.array([-np.inf, -200, -104, -95, 0, 89, 1e30, np.inf, np.nan], np.float32), 16)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(map1(isa, exponentials.vexp, special), np.exp(special), rtol=0, atol=2e-45)


@pytest.mark.parametrize("isa", LEVELS)
def test_exp_below_is_near_in_the_normal_range_and_0_or_a_denormal_number_below_it(isa: str) -> None:
    x = np.concatenate([np.linspace(-87.2, 40.0, 1 << 16), np.linspace(-2.0, 2.0, 1 << 12)]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    special = np.resize(np.array([-np.inf, -3e38, -200, -104.5, -95, -88, 0, -0.0, np.nan], np.float32), 16)
    special.view(np.uint32)[-1] = 0x7FFFFFFF  # not the NaN that the processor makes
    for denormal in (False, True):
        function = vec.unary("", lambda b, v, denormal=denormal: exponentials.emit_exp_below(b, v, denormal=denormal))
        got = map1(isa, function, x)
        assert ulps(got[np.abs(x) < 10], exact[np.abs(x) < 10]) <= 1.6
        assert ulps(got, exact) <= 6.0
        least = 2e-45 if denormal else 1.2e-38
        np.testing.assert_allclose(map1(isa, function, special), np.exp(special), rtol=1e-6, atol=least)


@pytest.mark.parametrize("isa", LEVELS)
def test_log_is_exact_to_two_ulps_and_keeps_its_special_values(isa: str) -> None:
    x = np.exp(np.linspace(-100.0, 88.0, 1 << 16)).astype(np.float32)
    x = x[np.abs(x - 1) > 1e-3]
    x = x[: x.size // 16 * 16]
    assert ulps(map1(isa, exponentials.vlog, x), np.log(x.astype(np.float64))) <= 2.0
    special = np.resize(np.array([0, -0.0, -1, np.inf, np.nan, 1.0, 1e-42], np.float32), 16)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_allclose(map1(isa, exponentials.vlog, special), np.log(special), rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (vec.vadd, np.add),
        (vec.vsub, np.subtract),
        (vec.vmul, np.multiply),
        (vec.vdiv, np.divide),
        (vec.vmax, np.maximum),
        (vec.vmin, np.minimum),
        (vec.vcopysign, np.copysign),
    ],
)
def test_functions_of_two_vectors(function: Callable[..., object], exact: Callable[..., np.ndarray]) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(64).astype(np.float32) for _ in range(2))
    np.testing.assert_array_equal(map2(LEVELS[-1], function, x, y), exact(x, y))


@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (vec.vneg, np.negative),
        (vec.vabs, np.abs),
        (vec.vsqrt, np.sqrt),
        (vec.vrelu, lambda x: np.maximum(x, 0)),
    ],
)
def test_functions_of_one_vector_keep_nan(
    function: Callable[..., object], exact: Callable[[np.ndarray], np.ndarray]
) -> None:
    x = np.resize(np.array([0.0, 1.5, 4.0, np.nan, np.inf, 1e-40, 3e38], np.float32), 32)
    np.testing.assert_array_equal(map1(LEVELS[-1], function, x), exact(x))
    if function is vec.vrelu:
        np.testing.assert_array_equal(map1(LEVELS[-1], function, -np.abs(x)), np.where(np.isnan(x), x, 0))


@pytest.mark.parametrize("isa", LEVELS)
def test_a_part_of_a_vector_touches_nothing_behind_it(isa: str) -> None:
    def kernel(begin: int, end: int, src: int, dst: int, count: int) -> None:
        vstore_part(dst, vec.vadd(vec.vload_part(src, count), vec.vset(np.float32(1.0))), count)

    for count in range(17):
        x, y = np.arange(16, dtype=np.float32), np.full(16, -7, np.float32)
        run(isa, kernel, x, y, extra=count)
        np.testing.assert_array_equal(y, [i + 1.0 if i < count else -7.0 for i in range(16)])


@pytest.mark.parametrize("isa", LEVELS)
def test_sums_maxima_and_masks_over_the_lanes(isa: str) -> None:
    def kernel(begin: int, end: int, src: int, dst: int, count: int) -> None:
        x = vec.vload(src)
        vec.fstore(dst, vec.vsum(x))
        vec.fstore(dst + 4, vec.vmax_lane(x))
        vec.fstore(dst + 8, vec.vsum(vec.vkeep(x, count)))
        chosen = vec.vselect_gt(x, vec.vbroadcast(src), vec.vset(np.float32(1.0)), vec.vset(np.float32(0.0)))
        vec.fstore(dst + 12, vec.vsum(chosen))
        vec.fstore(dst + 16, np.float32(vec.iload(src)))

    x, y = np.random.default_rng(2).integers(-50, 50, 16).astype(np.float32), np.zeros(16, np.float32)
    run(isa, kernel, x, y, extra=5)
    first_item = np.float32(x.view(np.int64)[0])
    np.testing.assert_array_equal(y[:5], [x.sum(), x.max(), x[:5].sum(), (x > x[0]).sum(), first_item])
