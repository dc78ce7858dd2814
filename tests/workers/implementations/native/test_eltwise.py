"""eltwise on native kernels."""

from __future__ import annotations

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
