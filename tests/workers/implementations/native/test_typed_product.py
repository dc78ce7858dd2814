"""Products of float64 against NumPy's: tails, slices, rows that are copied, and what is added to them."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Matmul, MemoryDesc, PostOp, PrimitiveAttr, post_op_src
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.workers.levels import target_of
from tests.workers.native_runner import PARTS, NativeRunner

#: M, K, N, the tag of src and that of weights.
PROBLEMS = (
    (29, 31, 33, "", "ba"),
    (1, 40, 70, "", ""),
    (37, 20, 1, "ba", ""),
    (15, 129, 48, "", "Ba16b"),
    (30, 512, 20, "", ""),
    (90, 1030, 17, "", ""),
)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_products_of_float64_are_numpys(
    native: NativeRunner, problem: tuple[int, int, int, str, str], isa: str
) -> None:
    m, k, n, left, right = problem
    rng = np.random.default_rng()
    a, b, bias, added = (rng.standard_normal(dims) for dims in ((m, k), (k, n), (1, n), (m, n)))
    dst = MemoryDesc((m, n), "f64")
    op = Matmul(MemoryDesc((m, k), "f64", left), MemoryDesc((k, n), "f64", right), MemoryDesc((1, n), "f64"), dst)
    relu, add = PostOp("eltwise", "relu"), PostOp("binary", "add", src1=dst)
    total = a @ b + bias
    for steps, wanted in (
        ((), total),
        ((add, relu), np.maximum(total + added, 0.0)),
        ((relu, add), np.maximum(total, 0.0) + added),
    ):
        pd = primitive_desc(op, PrimitiveAttr(steps), target_of(isa))
        assert pd.impl_name() == "native:typed_tiles"
        args = {int(Arg.SRC): a, int(Arg.WEIGHTS): b, int(Arg.BIAS): bias}
        args |= {post_op_src(i): added for i, step in enumerate(steps) if step is add}
        for parts in PARTS:
            got = native.run(pd, args, parts)[Arg.DST].reshape(m, n)
            np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-11)


def test_numbers_that_are_no_numbers_stay_what_they_are(native: NativeRunner, isa: str) -> None:
    a = np.array([[1.0, np.nan], [np.inf, 2.0], [-np.inf, 0.0]])
    md = MemoryDesc((3, 2), "f64")
    op = Matmul(md, MemoryDesc((2, 2), "f64"), None, md)
    pd = primitive_desc(op, PrimitiveAttr((PostOp("eltwise", "relu"),)), target_of(isa))
    got = native.run(pd, {Arg.SRC: a, Arg.WEIGHTS: np.eye(2) + 1.0})[Arg.DST].reshape(3, 2)
    np.testing.assert_array_equal(got, [[np.nan, np.nan], [np.inf, np.inf], [0.0, 0.0]])


def test_near_rows_that_compete_for_lines_of_the_cache_are_copied_on_avx2(native: NativeRunner, isa: str) -> None:
    rng = np.random.default_rng()
    # Rows of 1024 bytes begin in four places of a way of the cache, eight ways hold 32 of them.
    for rows, depth, columns, competes in (
        (32, 33, 128, True),
        (32, 32, 128, False),
        (30, 33, 128, False),
        (128, 64, 100, False),
    ):
        sizes = ((rows, depth), (depth, columns), (rows, columns))
        first, second, result = (MemoryDesc(dims, "f64") for dims in sizes)
        op = Matmul(first, second, None, result)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert pd.impl_name() == "native:typed_tiles"
        copies = len(pd.program().launches) - 1
        if isa == "x86-64-v3":
            assert copies == int(competes), sizes
        elif isa == "x86-64-v4":
            assert copies == 0, sizes
        left, right = (rng.standard_normal(dims) for dims in sizes[:2])
        found = native.results(pd, {int(Arg.SRC): left, int(Arg.WEIGHTS): right})[Arg.DST]
        np.testing.assert_allclose(found.reshape(sizes[2]), left @ right, rtol=1e-12, atol=1e-12)
