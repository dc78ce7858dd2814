"""eltwise on native kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special as special_functions

from poolrt.workers.desc import Arg, Eltwise, MemoryDesc, PrimitiveAttr
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.references import converted, numpy_type, results
from tests.workers.cases import Case, cases, integers
from tests.workers.cases.pointwise import eltwise_values
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner


@pytest.mark.parametrize("case", [*cases("eltwise"), *cases("eltwise", "blocked")], ids=str)
def test_native_result_is_right(case: Case, isa: str, native: NativeRunner) -> None:
    native.check(case, isa)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 4095, 4096, 4097, 8193])
def test_runs_of_any_length_are_cut_into_pieces(native: NativeRunner, isa: str, length: int) -> None:
    md = MemoryDesc((length,), "f32")
    native.check(Case(f"{length}", Eltwise(md, md, "linear", 2.0, 1.0), {Arg.SRC: integers(md.dims)}), isa)


@pytest.mark.parametrize(("src", "dst"), [("f32", "s32"), ("f32", "u8"), ("f64", "s64"), ("f16", "s32"), ("u8", "f32")])
def test_a_result_of_another_type_is_rounded_and_saturated(native: NativeRunner, isa: str, src: str, dst: str) -> None:
    values = np.concatenate([eltwise_values("trunc")[::3], np.exp2(np.arange(5, 66)), -np.exp2(np.arange(5, 66))])
    given = np.nan_to_num(values).clip(0, 255) if src == "u8" else values
    for algorithm in ("trunc", "floor", "relu"):
        for dims in ((values.size,), (1, 19, values.size // 19)):
            layout = "aBc16b" if len(dims) == 3 else ""
            op = Eltwise(MemoryDesc(dims, src, layout), MemoryDesc(dims, dst, layout), algorithm)
            with np.errstate(all="ignore"):
                part = given[: math.prod(dims)].reshape(dims).astype(numpy_type(src))
            pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
            assert pd.impl_name() == "native:eltwise"
            want = results(op, PrimitiveAttr(), {Arg.SRC: part})[Arg.DST]
            np.testing.assert_array_equal(native.results(pd, {Arg.SRC: part})[Arg.DST], converted(want, dst), str(op))


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 1.7), (1.0, 3.0), (2.0**-100, 3.0), (-(2.0**100), -3.0)])
def test_a_power_overflows_only_if_its_product_with_alpha_does(
    native: NativeRunner, isa: str, alpha: float, beta: float
) -> None:
    values = np.exp2(np.linspace(-100, 127, 500)).astype(np.float32)
    md = MemoryDesc(values.shape, "f32")
    case = Case("", Eltwise(md, md, "pow", alpha, beta), {Arg.SRC: values}, rtol=1e-6, atol=1.2e-38)
    native.check(case, isa)


@pytest.mark.parametrize("algorithm", ["sin", "cos"])
def test_sines_of_float64_are_within_a_unit_in_the_last_place(native: NativeRunner, algorithm: str, isa: str) -> None:
    rng = np.random.default_rng()
    quarters = np.arange(1, 900) * math.pi / 2
    special = [0.0, -0.0, 5e-324, -1e-310, np.nan, 1.49e6, -1.51e6, 1e300]
    drawn = (rng.standard_normal(2000) * scale for scale in (1e-8, 1.0, 1e3, 4e5, 1e9))
    x = np.concatenate([special, quarters, np.nextafter(quarters, 0), -1021 * quarters, *drawn])
    md = MemoryDesc(x.shape, "f64")
    pd = primitive_desc(Eltwise(md, md, algorithm), PrimitiveAttr(), target_of(isa))
    assert pd.impl_name() == "native:eltwise"
    got = native.results(pd, {Arg.SRC: x})[Arg.DST].view(np.float64)
    # 64 bits of x87
    exact = {"sin": np.sin, "cos": np.cos}[algorithm](x.astype(np.longdouble))
    np.testing.assert_array_less(np.abs(got - exact)[x == x], np.spacing(np.abs(exact).astype(np.float64))[x == x])
    assert (np.isnan(got) == np.isnan(x)).all()
    assert np.signbit(got[:2]).tolist() == [False, algorithm == "sin"]


@pytest.mark.parametrize(("algorithm", "units"), [("logistic", 4), ("swish", 4), ("gelu_erf", 8), ("gelu_tanh", 40)])
def test_gates_are_near_float64_in_both_tails_and_at_special_numbers(
    native: NativeRunner, algorithm: str, units: int, isa: str
) -> None:
    """Results above 1e-30 are within some units in the last place."""
    rng = np.random.default_rng()
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45, 30.0, 88.5, -88.5]
    x = np.concatenate([special, *(rng.standard_normal(5000) * scale for scale in (1e-3, 1.0, 4.0))]).astype(np.float32)
    md = MemoryDesc(x.shape, "f32")
    pd = primitive_desc(Eltwise(md, md, algorithm, 1.0), PrimitiveAttr(), target_of(isa))
    assert pd.impl_name() == "native:eltwise"
    got = native.results(pd, {Arg.SRC: x})[Arg.DST].astype(np.float64)
    w = x.astype(np.float64)
    with np.errstate(all="ignore"):
        if algorithm == "gelu_erf":
            exact = 0.5 * w * special_functions.erfc(-w * math.sqrt(0.5))
        else:
            z = 2 * math.sqrt(2 / math.pi) * (w + 0.044715 * w**3) if algorithm == "gelu_tanh" else w
            exact = special_functions.expit(z) * (1.0 if algorithm == "logistic" else w)
    normal = np.isfinite(exact) & (np.abs(exact) > 1e-30)
    np.testing.assert_allclose(got[normal], exact[normal], rtol=units * 2.0**-23)
    np.testing.assert_allclose(got[~normal & np.isfinite(exact)], exact[~normal & np.isfinite(exact)], atol=1e-30)
    assert np.isnan(got[4])
    assert got[2] == (1.0 if algorithm == "logistic" else np.inf)
    assert np.signbit(got[1]) == (algorithm != "logistic")
