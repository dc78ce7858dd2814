"""lrn on native kernels."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Lrn, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.references import results
from tests.workers.cases import Case, cases
from tests.workers.native_runner import NativeRunner


@pytest.mark.parametrize("case", [*cases("lrn"), *cases("lrn", "blocked")], ids=str)
def test_native_result_is_right(case: Case, isa: str, native: NativeRunner) -> None:
    native.check(case, isa)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 63, 64, 65, 130, 200])
def test_images_of_every_size_are_cut_into_items(native: NativeRunner, length: int) -> None:
    md = MemoryDesc((2, 7, length), "f32")
    op = Lrn(md, md, 4, 0.5, 0.75, 1.25)
    given = np.random.default_rng().standard_normal(md.dims).astype(np.float32)
    pd = primitive_desc(op, PrimitiveAttr(), cpu_target())
    assert pd.impl_name() == "native:lrn"
    want = results(op, PrimitiveAttr(), {Arg.SRC: given})[Arg.DST]
    np.testing.assert_allclose(native.results(pd, {Arg.SRC: given})[Arg.DST], want, rtol=5e-7)
