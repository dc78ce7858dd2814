"""Determinants on native kernels: matrices of one to several panels, singular ones, and numbers near the ends of the range."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Determinant, MemoryDesc, PostOp, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references.determinant import Array, determinant
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner


def described(shape: tuple[int, ...], dtype: str = "f64") -> Determinant:
    return Determinant(MemoryDesc(shape, dtype), MemoryDesc(shape[:1], dtype))


def computed(native: NativeRunner, isa: str, src: Array) -> Array:
    pd = primitive_desc(described(src.shape, {8: "f64", 4: "f32"}[src.itemsize]), PrimitiveAttr(), target_of(isa))
    assert pd.impl_name() == "native:determinant"
    return native.results(pd, {int(Arg.SRC): src})[Arg.DST]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_determinants_are_those_of_extended_precision(native: NativeRunner, isa: str, kind: type) -> None:
    rng = np.random.default_rng()
    for count, rows in (
        (70, 2),
        (9, 3),
        (21, 4),
        (3, 7),
        (130, 8),
        (2, 9),
        (5, 16),
        (2, 17),
        (1, 25),
        (3, 40),
        (1, 71),
    ):
        src: Array = rng.standard_normal((count, rows, rows)).astype(kind)
        # Rows of very different sizes change places; so do all in the second half.
        src[count // 2 :] = src[count // 2 :, ::-1] * 2.0 ** rng.integers(-6, 7, (rows, 1))
        tolerance = 2e-7 if kind is np.float32 else 1e-12 * rows
        # The error of a determinant near 0 is one of its terms: beside the product of the lengths of rows.
        reach = np.prod(np.linalg.norm(src.astype(np.float64), axis=2), axis=1)
        with np.errstate(over="ignore"):
            want = determinant(src).astype(kind).astype(np.float64)
        got = computed(native, isa, src).astype(np.float64)
        with np.errstate(invalid="ignore"):
            apart = np.abs(np.where(got == want, 0.0, got - want))
        assert (apart <= tolerance * np.abs(want) + 1e-13 * reach).all(), (count, rows, got, want)


def test_singular_matrices_and_permutations_are_exact(native: NativeRunner, isa: str) -> None:
    rng = np.random.default_rng()
    for rows in (1, 5, 8, 12, 33):
        identity = np.eye(rows)[rng.permutation(rows)]
        twice = rng.integers(-3, 4, (rows, rows)).astype(np.float64)
        twice[-1] = twice[0] * 2 if rows > 1 else 0
        hollow = rng.standard_normal((rows, rows))
        hollow[:, rows // 2] = 0.0
        got = computed(native, isa, np.stack([identity, np.zeros((rows, rows)), hollow, -2 * np.eye(rows)]))
        np.testing.assert_array_equal(got, [round(np.linalg.det(identity)), 0.0, 0.0, (-2.0) ** rows])
        if rows <= 8:
            assert abs(computed(native, isa, twice[None])[0]) <= 1e-12 * 6**rows


def test_pivots_beyond_the_range_of_their_product(native: NativeRunner, isa: str) -> None:
    large = np.diag([2.0**1000, 2.0**900, -(2.0**-1000), 2.0**-900, 3.0, 2.0**-1050, 2.0**1020, 2.0**30, 1.0, 2.0**-10])
    small = np.diag([2.0**-1074, 2.0**-1000, 2.0**1000, 2.0**1000, 5.0])
    np.testing.assert_array_equal(computed(native, isa, large[None]), [-3.0 * 2.0**-10])
    np.testing.assert_array_equal(
        computed(native, isa, np.stack([small, 2.0**900 * np.eye(5)])), [5 * 2.0**-74, np.inf]
    )
    np.testing.assert_array_equal(computed(native, isa, (np.eye(9, dtype=np.float32) * 1e10)[None]), [np.inf])


def test_infinities_and_nan_are_as_in_numpy(native: NativeRunner, isa: str) -> None:
    rng = np.random.default_rng(5)
    for rows, kind in (
        (2, np.float64),
        (8, np.float64),
        (11, np.float64),
        (2, np.float32),
        (3, np.float32),
        (4, np.float32),
    ):
        some: Array = np.eye(rows) if rows < 5 else rng.standard_normal((rows, rows))
        some = np.stack([some] * 6).astype(kind)
        some[0, 0, 0] = np.inf
        some[1, rows - 1, 0] = -np.inf
        some[2, 1, 1] = np.nan
        some[3, 0, rows - 1] = np.nan
        some[4, :, 1] = 0.0
        some[4, 0, 0] = np.inf
        some[5] = np.triu(some[5])
        some[5, rows - 1, rows - 1] = np.inf
        with np.errstate(all="ignore"):
            want = np.linalg.det(some.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(computed(native, isa, some)), np.isnan(want), err_msg=str((rows, want)))


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    def refused(op: Determinant, why: str, attr: PrimitiveAttr | None = None) -> None:
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, attr or PrimitiveAttr(), cpu_target(), references=False)

    refused(described((2, 3, 3), "s32"), "s32 to s32")
    refused(described((2, 3, 3)), "post-ops", PrimitiveAttr(post_ops=(PostOp("eltwise", "relu"),)))
    with pytest.raises(ValueError, match="src"):
        described((2, 3, 4))
