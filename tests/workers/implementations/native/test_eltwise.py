"""eltwise on native kernels."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Eltwise, MemoryDesc
from tests.workers.cases import Case, cases, integers
from tests.workers.native_runner import NativeRunner


@pytest.mark.parametrize("case", [*cases("eltwise"), *cases("eltwise", "blocked")], ids=str)
def test_native_result_is_right(case: Case, isa: str, native: NativeRunner) -> None:
    native.check(case, isa)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 4095, 4096, 4097, 8193])
def test_runs_of_any_length_are_cut_into_pieces(native: NativeRunner, isa: str, length: int) -> None:
    md = MemoryDesc((length,), "f32")
    native.check(Case(f"{length}", Eltwise(md, md, "linear", 2.0, 1.0), {Arg.SRC: integers(md.dims)}), isa)


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 1.7), (2.0**-100, 3.0), (-(2.0**100), -3.0)])
def test_a_power_overflows_only_if_its_product_with_alpha_does(
    native: NativeRunner, isa: str, alpha: float, beta: float
) -> None:
    values = np.exp2(np.linspace(-100, 127, 500)).astype(np.float32)
    md = MemoryDesc(values.shape, "f32")
    case = Case("", Eltwise(md, md, "pow", alpha, beta), {Arg.SRC: values}, rtol=1e-6, atol=1.2e-38)
    native.check(case, isa)
