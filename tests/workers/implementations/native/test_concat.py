"""Concat on native kernels."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Concat, MemoryDesc, PrimitiveAttr, multiple_src
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references import numpy_type
from tests.workers.cases import Case, cases
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner


def begins_inside_a_block(case: Case) -> bool:
    """Return whether a source of a concat along channels begins at a channel that is no multiple of 16."""
    assert isinstance(case.op, Concat)
    starts = [sum(s.dims[1] for s in case.op.srcs[:i]) for i in range(len(case.op.srcs))] if case.op.axis == 1 else []
    return any(start % 16 for start in starts)


BLOCKED = cases("concat", "blocked")
PLAIN = cases("concat")


@pytest.mark.parametrize("case", [*PLAIN, *BLOCKED], ids=str)
def test_native_result_is_right(case: Case, isa: str, native: NativeRunner) -> None:
    native.check(case, isa)


@pytest.mark.parametrize("case", [c for c in BLOCKED if begins_inside_a_block(c)], ids=str)
def test_blocked_sources_that_begin_inside_a_block_are_left_to_the_reference(case: Case) -> None:
    assert primitive_desc(case.op, case.attr, cpu_target()).impl_name() == "ref:concat"
    with pytest.raises(UnsupportedPrimitive, match="inside of a block"):
        primitive_desc(case.op, case.attr, cpu_target(), references=False)


def test_permuted_layouts_are_joined_in_memory_order(isa: str, native: NativeRunner) -> None:
    shapes = ((2, 3, 4, 5), (2, 6, 4, 5))
    plain = next(c for c in PLAIN if isinstance(c.op, Concat) and c.op.srcs[0].dims == (2, 3, 4, 5))
    srcs = tuple(MemoryDesc(dims, "f32", "acdb") for dims in shapes)
    op = Concat(srcs, MemoryDesc((2, 9, 4, 5), "f32", "any"), 1)
    numbers = list(plain.args)
    args = {numbers[0]: plain.args[numbers[0]], numbers[1]: plain.args[numbers[1]][:, :6]}
    native.check(Case("channels last", op, args, rtol=0.0, atol=0.0), isa)


@pytest.mark.parametrize(
    "dtype", ["f32", pytest.param("u8", marks=pytest.mark.slow), pytest.param("f64", marks=pytest.mark.slow)]
)
def test_short_rows_are_joined(isa: str, dtype: str, native: NativeRunner) -> None:
    rng = np.random.default_rng()
    for parts in ((1, 1), (3, 5), (17, 0, 64, 1), (2, 1, 300, 4, 7, 33), (5000, 3)):
        lines = int(rng.integers(1, 700))
        arrays = [rng.integers(0, 255, (lines, length)).astype(numpy_type(dtype)) for length in parts]
        srcs = tuple(MemoryDesc(array.shape, dtype) for array in arrays)
        op = Concat(srcs, MemoryDesc((lines, sum(parts)), dtype), 1)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert pd.impl_name() == "native:concat"
        args = {multiple_src(number): array for number, array in enumerate(arrays)}
        got = native.results(pd, args)[Arg.DST]
        np.testing.assert_array_equal(got, np.concatenate(arrays, 1), f"{parts} {lines}")


def test_layouts_left_open_follow_the_first_source_that_has_one() -> None:
    srcs = (MemoryDesc((1, 16, 2, 2), "f32", "any"), MemoryDesc((1, 16, 2, 2), "f32", "aBcd16b"))
    op = Concat(srcs, MemoryDesc((1, 32, 2, 2), "f32", "any"), 1)
    pd = primitive_desc(op, PrimitiveAttr(), cpu_target())
    assert {md.tag for md in pd.memories().values()} == {"aBcd16b"}
