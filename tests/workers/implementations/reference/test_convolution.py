"""Convolution in every propagation kind, deconvolution and inner product, drawn at random: their sums are exact."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    Convolution,
    Deconvolution,
    InnerProduct,
    MemoryDesc,
    PrimitiveAttr,
    Quantisation,
    zero_points_of,
)
from poolrt.workers.implementations.primitive_desc import primitive_descs
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

from .drawing import Runner, arguments, attributes, check, described, examples, reference_of
from .windows import windows

PROPS = ("forward_training", "backward_data", "backward_weights")
QUANTISED = (Arg.SRC, Arg.WEIGHTS)


@st.composite
def convolutions(draw: st.DrawFn, prop: str = "forward_inference") -> Convolution:
    window = draw(windows())
    groups, batch = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    inputs, outputs = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    bias = None if prop == "backward_data" else draw(st.none() | described((groups * outputs,)))
    return Convolution(
        draw(described((batch, groups * inputs, *window.src))),
        draw(described((groups * outputs, inputs, *window.kernel))),
        bias,
        draw(described((batch, groups * outputs, *window.dst))),
        window.strides, window.dilations, window.padding_l, window.padding_r, groups, prop,
    )  # fmt: skip


@st.composite
def inner_products(draw: st.DrawFn, prop: str = "forward_inference") -> InnerProduct:
    inputs = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)))
    batch, outputs = draw(st.integers(0, 4)), draw(st.integers(1, 17))
    bias = None if prop == "backward_data" else draw(st.none() | described((outputs,)))
    src, weights = draw(described((batch, *inputs))), draw(described((outputs, *inputs)))
    return InnerProduct(src, weights, bias, draw(described((batch, outputs))), prop)


@examples(30)
@given(data=st.data())
def test_convolution_with_attributes(runner: Runner, data: st.DataObject) -> None:
    op = data.draw(convolutions())
    check(runner, op, data.draw(attributes(op, QUANTISED)), threshold=0.0)


@pytest.mark.parametrize("prop", PROPS)
@examples(25)
@given(data=st.data())
def test_propagation_of_convolution(runner: Runner, prop: str, data: st.DataObject) -> None:
    check(runner, data.draw(convolutions(prop)), threshold=0.0)


@examples(30)
@given(data=st.data())
def test_deconvolution_with_attributes(runner: Runner, data: st.DataObject) -> None:
    # Given a convolution run backwards: dst has the sizes that it takes to those of src
    seen = data.draw(convolutions())
    batch, channels, *sizes = seen.dst.dims
    outputs = data.draw(st.integers(1, 5))
    op = Deconvolution(
        data.draw(described((batch, channels, *sizes))),
        data.draw(described((seen.groups * outputs, channels // seen.groups, *seen.weights.dims[2:]))),
        data.draw(st.none() | described((seen.groups * outputs,))),
        data.draw(described((batch, seen.groups * outputs, *seen.src.dims[2:]))),
        seen.strides, seen.dilations, seen.padding_l, seen.padding_r, seen.groups,
    )  # fmt: skip
    check(runner, op, data.draw(attributes(op, QUANTISED)), threshold=0.0)


@examples(30)
@given(data=st.data())
def test_inner_product_with_attributes(runner: Runner, data: st.DataObject) -> None:
    op = data.draw(inner_products())
    check(runner, op, data.draw(attributes(op, QUANTISED)), threshold=0.0)


@pytest.mark.parametrize("prop", PROPS)
@examples(25)
@given(data=st.data())
def test_propagation_of_inner_product(runner: Runner, prop: str, data: st.DataObject) -> None:
    check(runner, data.draw(inner_products(prop)), threshold=0.0)


def small() -> Convolution:
    src, weights = MemoryDesc((2, 3, 5, 4), "f32"), MemoryDesc((5, 3, 2, 3), "f32", "ABcd4b2a")
    dst = MemoryDesc((2, 5, 4, 2), "bf16", "aBcd4b")
    return Convolution(src, weights, MemoryDesc((5,), "f32"), dst, (1, 1), (0, 0), (0, 0), (0, 0))


def test_every_isa_level_computes_the_same_bytes(native: NativeRunner, isa: str) -> None:
    args = arguments(small(), PrimitiveAttr(), 1)
    found, weakest = (
        native.run(primitive_descs(small(), PrimitiveAttr(), target_of(level))[-1], args)[Arg.DST]
        for level in (isa, "x86-64-v2")
    )
    assert found.tobytes() == weakest.tobytes()


def test_padding_counts_as_zero_points(runner: Runner) -> None:
    """What lies outside of src is 0, not the stored number 0: a zero point moves nothing there."""
    src, dst = MemoryDesc((1, 1, 3), "u8"), MemoryDesc((1, 1, 3), "s32")
    op = Convolution(src, MemoryDesc((1, 1, 3), "s8"), None, dst, (1,), (0,), (1,), (1,))
    args: dict[int, NDArray[Any]] = {
        Arg.SRC: np.array([[[1, 2, 4]]]),
        Arg.WEIGHTS: np.ones((1, 1, 3)),
        zero_points_of(Arg.SRC): np.array([1]),
    }
    pd = reference_of(op, PrimitiveAttr(zero_points=(Quantisation(Arg.SRC),)), runner.target)
    assert runner.results(pd, args)[Arg.DST].tolist() == [[[1, 4, 4]]]


def test_a_sum_of_integers_that_float32_cannot_hold_is_exact(runner: Runner) -> None:
    row = MemoryDesc((1, 3), "s32")
    op = InnerProduct(row, row, None, MemoryDesc((1, 1), "s32"))
    large = 2**24 + 1
    args: dict[int, NDArray[Any]] = {Arg.SRC: np.array([[large, 1, 1]]), Arg.WEIGHTS: np.ones((1, 3))}
    assert runner.results(reference_of(op, PrimitiveAttr(), runner.target), args)[Arg.DST].tolist() == [[large + 2]]


def test_layouts_left_open_follow_the_other_side(runner: Runner) -> None:
    op = small()
    opened = dataclasses.replace(op, src=op.src.with_tag("any"), weights=op.weights.with_tag("any"))
    chosen = reference_of(opened, PrimitiveAttr()).memories()
    assert (chosen[Arg.SRC].tag, chosen[Arg.WEIGHTS].tag) == ("aBcd4b", "abcd")
    check(runner, opened, threshold=0.0)
