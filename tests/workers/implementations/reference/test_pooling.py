"""Pooling in every propagation kind, drawn at random: maxima and sums are exact, averages rounded once."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, MemoryDesc, Pooling, PrimitiveAttr, Quantisation
from poolrt.workers.desc.operations.pooling import POOLING_ALGORITHMS
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references.pooling import pooling_winners
from tests.workers.cases.longs import long_maxima

from .drawing import LAST_PLACE, Runner, arguments, attributes, check, described, examples, reference_of
from .windows import windows


@st.composite
def poolings(draw: st.DrawFn, prop: str, gradients: bool = False) -> Pooling:
    window = draw(windows())
    outer = (draw(st.integers(0, 3)), draw(st.integers(1, 5)))
    types = st.sampled_from(tuple(LAST_PLACE)) if gradients else st.none()
    return Pooling(
        draw(described((*outer, *window.src), draw(types))), draw(described((*outer, *window.dst), draw(types))),
        draw(st.sampled_from(POOLING_ALGORITHMS)), window.kernel,
        window.strides, window.dilations, window.padding_l, window.padding_r, prop,
    )  # fmt: skip


@examples(30)
@given(data=st.data())
def test_inference_with_post_ops(runner: Runner, data: st.DataObject) -> None:
    op = data.draw(poolings("forward_inference"))
    attr = dataclasses.replace(data.draw(attributes(op)), scales=(), zero_points=())
    check(runner, op, attr, threshold=0.0)


@examples(25)
@given(data=st.data())
def test_training_writes_the_winners_of_maxima(runner: Runner, data: st.DataObject) -> None:
    check(runner, data.draw(poolings("forward_training")), threshold=0.0)


@pytest.mark.parametrize("dtype", ["s64", "u64"])
@pytest.mark.parametrize("prop", ["forward_inference", "forward_training"])
def test_maxima_of_64_bit_integers_are_exact(runner: Runner, prop: str, dtype: str) -> None:
    rng = np.random.default_rng()
    for axes, tag in ((1, "abc"), (2, "acdb"), (2, "aBcd16b"), (3, "abcde")):
        op, src, dst, winners = long_maxima(rng, dtype, axes, tag, prop)
        got = runner.results(reference_of(op, PrimitiveAttr(), runner.target), {Arg.SRC: src})
        np.testing.assert_array_equal(got[Arg.DST], dst, f"{op}", strict=True)
        if prop == "forward_training":
            np.testing.assert_array_equal(got[Arg.WORKSPACE], winners, f"{op}")


@examples(30)
@given(data=st.data())
def test_gradients(runner: Runner, data: st.DataObject) -> None:
    op = data.draw(poolings("backward_data", gradients=True))
    src = np.random.default_rng(1).integers(-4, 5, op.src.dims).astype(np.float64)
    args = arguments(op, PrimitiveAttr(), 0)
    check(runner, op, args=args | ({Arg.WORKSPACE: pooling_winners(op, src)} if op.algorithm == "max" else {}))


@pytest.mark.parametrize("algorithm", POOLING_ALGORITHMS[1:])
def test_a_mean_over_the_edge_of_an_image_gives_equal_parts(runner: Runner, algorithm: str) -> None:
    src, dst = MemoryDesc((2, 3, 5, 4), "f64"), MemoryDesc((2, 3, 3, 3), "f64")
    op = Pooling(src, dst, algorithm, (3, 2), (2, 2), (0, 1), (1, 2), (1, 1), "backward_data")
    check(runner, op)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8", "u8", "s32"])
def test_a_window_wholly_outside_gives_the_lowest_value(runner: Runner, dtype: str) -> None:
    src, dst = MemoryDesc((1, 1, 2), dtype), MemoryDesc((1, 1, 6), dtype)
    op = Pooling(src, dst, "max", (1,), (1,), (0,), (2,), (2,), "forward_training")
    got = runner.results(reference_of(op, PrimitiveAttr(), runner.target), {Arg.SRC: np.array([[[3.0, 4.0]]])})
    lowest = {"s8": -128, "u8": 0, "s32": -(2**31)}.get(dtype, -np.inf)
    assert got[Arg.DST].astype(np.float64).ravel().tolist() == [lowest, lowest, 3, 4, lowest, lowest]
    assert got[Arg.WORKSPACE].ravel().tolist() == [0] * 6


def test_nan_loses_and_infinities_count(runner: Runner) -> None:
    src, dst = MemoryDesc((1, 1, 6), "f32"), MemoryDesc((1, 1, 3), "f32")
    op = Pooling(src, dst, "max", (2,), (2,), (0,), (0,), (0,), "forward_training")
    nan, inf = np.nan, np.inf
    args: dict[int, NDArray[Any]] = {Arg.SRC: np.array([[[nan, 1.0, -inf, nan, nan, nan]]])}
    got = runner.results(reference_of(op, PrimitiveAttr(), runner.target), args)
    assert got[Arg.DST].ravel().tolist() == [1.0, -inf, -inf]
    assert got[Arg.WORKSPACE].ravel().tolist() == [1, 0, 0]


def test_layouts_left_open_follow_the_other_side(runner: Runner) -> None:
    src, dst = MemoryDesc((2, 5, 4), "f32", "any"), MemoryDesc((2, 5, 2), "f32", "aBc4b")
    for one, other in ((src.with_tag("aBc4b"), dst.with_tag("any")), (src, dst)):
        op = Pooling(one, other, "max", (2,), (2,), (0,), (0,), (0,), "forward_training")
        chosen = reference_of(op, PrimitiveAttr()).memories()
        assert {chosen[arg].tag for arg in (Arg.SRC, Arg.DST, Arg.WORKSPACE)} == {"aBc4b"}
        check(runner, op, threshold=0.0)


def test_scales_are_refused() -> None:
    md = MemoryDesc((1, 1, 2), "s8")
    op = Pooling(md, md, "max", (1,), (1,), (0,), (0,), (0,))
    with pytest.raises(UnsupportedPrimitive, match="pooling takes no scales"):
        primitive_desc(op, PrimitiveAttr(scales=(Quantisation(Arg.SRC),)), cpu_target())
