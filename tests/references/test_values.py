"""What references do to values: rounding to a data type, comparison, scales, zero points, layouts with gaps."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from poolrt.workers.desc import (
    Arg,
    Binary,
    Eltwise,
    MemoryDesc,
    PostOp,
    PrimitiveAttr,
    Quantisation,
    scales_of,
    zero_points_of,
)

from .compare import assert_close
from .data_types import converted, rounded
from .layout import between, pack, unpack
from .reference import reference


def test_bf16_is_rounded_as_ml_dtypes_rounds_a_float32() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 50_000, np.uint32)
    values = np.concatenate([bits, (bits & 0xFFFF0000) | 0x8000]).view(np.float32)
    values = values[~np.isnan(values)]
    wanted = values.astype(ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_array_equal(rounded(values, "bf16"), wanted)


def test_bf16_is_rounded_once() -> None:
    """Through float32 this number, a little above a tie, would become the tie and then the even neighbour below."""
    assert rounded(np.array([1 + 2.0**-8 + 2.0**-40]), "bf16").tolist() == [1 + 2.0**-7]


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        ("s8", [0, 2, 2, -128, 127, -128]),
        ("u8", [0, 2, 2, 0, 255, 0]),
        ("bool", [True] * 6),
        ("s64", [0, 2, 2, -300, 2**63 - 1, -(2**63)]),
    ],
)
def test_integers_are_rounded_to_even_and_saturated(dtype: str, wanted: list[int]) -> None:
    assert converted(np.array([0.5, 1.5, 2.5, -300.0, 1e30, np.nan]), dtype).tolist() == wanted


def test_a_comparison_is_relative_to_the_rounded_reference() -> None:
    third = np.array([1 / 3, 1e30, np.nan, -np.inf])
    assert_close(third.astype(np.float32), third, "f32")
    for wrong in (third * [1 + 1e-6, 1, 1, 1], third * [1, 1, 1, -1], [1 / 3, 1e30, 0.0, -np.inf]):
        with pytest.raises(AssertionError, match="1 of 4 wrong"):
            assert_close(np.array(wrong, np.float32), third, "f32", 1e-7)


def test_an_integer_half_way_between_two_may_be_either_only_where_there_is_doubt() -> None:
    want, even, odd = np.array([3.5, 3.5 - 4e-16, -2.5, 7.0]), np.array([4, 4, -2, 7]), np.array([3, 3, -3, 7])
    for got in (even, odd):
        assert_close(got, want, "s8", doubt=1e-12)
    with pytest.raises(AssertionError, match="2 of 4 wrong"):
        assert_close(odd, want, "s8")
    first, *_, last = np.eye(4, dtype=int)
    for wrong in (even + first, odd - first, even + last):
        with pytest.raises(AssertionError, match="1 of 4 wrong"):
            assert_close(wrong, want, "s8", doubt=1e-12)


def test_scales_and_zero_points_stand_where_onednn_has_them() -> None:
    md = MemoryDesc((2, 2), "f32")
    attr = PrimitiveAttr(
        (PostOp("eltwise", "relu"),),
        (Quantisation(Arg.SRC, 0b10), Quantisation(Arg.DST)),
        (Quantisation(Arg.SRC), Quantisation(Arg.DST, 0b01)),
    )
    args: dict[int, np.ndarray] = {
        Arg.SRC: np.array([[1.0, 5.0], [7.0, -2.0]]),
        Arg.SRC_1: np.ones((2, 2)),
        scales_of(Arg.SRC): np.array([2.0, 10.0]),
        scales_of(Arg.DST): np.array([4.0]),
        zero_points_of(Arg.SRC): np.array([3]),
        zero_points_of(Arg.DST): np.array([100, 200]),
    }
    # (src - 3) * (2 | 10) + 1: [[-3, 21], [9, -49]]; relu; / 4; + (100 over 200)
    got = reference(Binary(md, md, md, "add"), attr, args)
    assert got.tolist() == [[100.0, 105.25], [202.25, 200.0]]


def test_a_sum_reads_dst_as_the_type_that_it_says() -> None:
    md = MemoryDesc((2,), "u8")
    args: dict[int, np.ndarray] = {Arg.SRC: np.array([1.0, 2.0]), Arg.DST: np.array([255, 3], np.uint8)}
    for dtype, wanted in (("", [1 + 2 * 254, 2 + 2 * 2]), ("s8", [1 + 2 * -2, 2 + 2 * 2])):
        attr = PrimitiveAttr((PostOp.accumulate(2.0, 1, dtype),))
        assert reference(Eltwise(md, md, "linear", 1.0), attr, args).tolist() == wanted


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8", "bool"])
def test_a_layout_with_gaps_packs_and_unpacks(dtype: str) -> None:
    md = MemoryDesc((2, 3), dtype, strides=(2, 5))
    values = converted(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), dtype)
    flat = pack(values, md)
    places = [0, 5, 10, 2, 7, 12]
    assert (flat.size, flat[places].tolist()) == (13, values.ravel().tolist())
    assert not np.delete(flat, places).any()
    np.testing.assert_array_equal(unpack(flat, md), values)
    assert (
        between(np.arange(13).astype(flat.dtype), md).tolist()
        == np.delete(np.arange(13), places).astype(flat.dtype).tolist()
    )
