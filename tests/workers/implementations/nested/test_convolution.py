"""Convolution on reorder and matmul: kernels of 1 as they are; what is nested, and what is left to others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.workers.desc import Arg, Convolution, MemoryDesc, PostOp, PrimitiveAttr, Quantisation
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.nested.convolution import NestedConvolution
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.workers.implementations.reference.drawing import Runner, arguments, examples
from tests.workers.native_runner import NativeRunner

from .checking import check, nested_of

LETTERS = "abcde"
PROPS = ("forward_inference", "forward_training", "backward_data", "backward_weights")


@st.composite
def tags(draw: st.DrawFn, rank: int) -> str:
    """Draw a tag: any, permuted, or with blocks of one dimension."""
    kind = draw(st.sampled_from(("any", "permuted", "blocked")))
    if kind == "any":
        return "any"
    order = draw(st.permutations(range(rank)))
    block = draw(st.integers(0, rank - 1)) if kind == "blocked" else -1
    tag = "".join(LETTERS[dim].upper() if dim == block else LETTERS[dim] for dim in order)
    return tag + (f"{draw(st.sampled_from((4, 16)))}{LETTERS[block]}" if kind == "blocked" else "")


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    """Draw a convolution with kernels of 1 and without padding; windows are drawn with all other implementations'."""
    rank, groups = draw(st.integers(1, 3)), draw(st.sampled_from((1, 1, 2, 3)))
    batch, (inputs, outputs) = draw(st.integers(1, 3)), draw(st.sampled_from(((3, 5), (5, 3), (1, 17))))
    strides = tuple(draw(st.integers(1, 2)) for _ in range(rank))
    sizes = tuple(draw(st.integers(3, 6)) for _ in range(rank))
    results = tuple((size - 1) // step + 1 for size, step in zip(sizes, strides, strict=True))
    prop, none = draw(st.sampled_from(PROPS)), (0,) * rank
    shapes = (
        (batch, groups * inputs, *sizes),
        (groups * outputs, inputs, *(1,) * rank),
        (batch, groups * outputs, *results),
    )
    src, weights, dst = (MemoryDesc(dims, "f32", draw(tags(rank + 2))) for dims in shapes)
    bias = MemoryDesc((groups * outputs,), "f32") if prop != "backward_data" and draw(st.booleans()) else None
    return Convolution(src, weights, bias, dst, strides, none, none, none, groups, prop)


@pytest.mark.parametrize(
    "runner", ["held_back", *(pytest.param(n, marks=pytest.mark.slow) for n in ("opencl", "every_pool"))], indirect=True
)
@examples(4)
@given(op=convolutions())
def test_kernels_of_1_in_every_layout_and_propagation_kind(runner: Runner, op: Convolution) -> None:
    check(runner, op)


def pointwise(dtype: str = "f32", tag: str = "acdb", groups: int = 1, prop: str = PROPS[0]) -> Convolution:
    weights, result = ("f32", "f32") if dtype == "f32" else ("s8", "s32")
    return Convolution(
        MemoryDesc((2, 16, 5, 6), dtype, tag), MemoryDesc((20, 16 // groups, 1, 1), weights, "any"), None,
        MemoryDesc((2, 20, 5, 6), result, tag), (1, 1), (0, 0), (0, 0), (0, 0), groups, prop,
    )  # fmt: skip


def test_pixels_whose_channels_lie_together_are_rows_as_they_are(runner: Runner) -> None:
    pd = check(runner, pointwise())
    assert [inner.op.kind for inner in pd.nested()] == ["matmul"]


def test_row_major_images_are_reordered_before_and_after(runner: Runner) -> None:
    pd = check(runner, pointwise(tag="abcd"))
    assert [inner.op.kind for inner in pd.nested()] == ["reorder", "matmul", "reorder"]


def test_post_ops_are_those_of_the_product(runner: Runner) -> None:
    op = pointwise()
    check(runner, op, PrimitiveAttr((PostOp("binary", "add", src1=op.dst), PostOp("eltwise", "relu"))))


@pytest.mark.parametrize("src", ["u8", "s8"])
def test_8_bit_integers_are_multiplied_exactly(native: Runner, src: str) -> None:
    check(native, pointwise(src))
    check(native, pointwise(src, "abcd"), PrimitiveAttr(zero_points=(Quantisation(Arg.SRC), Quantisation(Arg.DST, 2))))
    constant = Quantisation(Arg.WEIGHTS, 0, (-5,)), Quantisation(Arg.DST, 2, tuple(range(-7, 13)))
    check(native, pointwise(src, "abcd"), PrimitiveAttr(zero_points=(Quantisation(Arg.SRC), *constant)))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_kernels_of_1_in_16_bits_are_products_of_16_bits(native: Runner, dtype: str) -> None:
    op = Convolution(
        MemoryDesc((2, 16, 5, 6), dtype, "acdb"), MemoryDesc((20, 16, 1, 1), dtype, "any"), MemoryDesc((20,), dtype),
        MemoryDesc((2, 20, 5, 6), dtype, "acdb"), (1, 1), (0, 0), (0, 0), (0, 0), 1, PROPS[0],
    )  # fmt: skip
    pd = check(native, op, PrimitiveAttr((PostOp("binary", "add", src1=op.dst), PostOp("eltwise", "relu"))))
    assert primitive_desc(op, PrimitiveAttr(), cpu_target()).impl_name() == "nested:matmul"
    assert [(inner.op.kind, inner.op.memories()[Arg.WEIGHTS].dtype) for inner in pd.nested()] == [("matmul", dtype)]


def test_images_stay_with_the_kernels_made_for_them() -> None:
    op = pointwise(tag="any")
    assert primitive_desc(op, PrimitiveAttr(), cpu_target()).impl_name() == "native:blocked"
    assert primitive_desc(pointwise(), PrimitiveAttr(), cpu_target()).impl_name() == "nested:matmul"


DECLINED: list[tuple[dict[str, Any], PrimitiveAttr, str]] = [
    ({"dtype": "bf16"}, PrimitiveAttr(), "data types"),
    ({"dtype": "u8", "groups": 2}, PrimitiveAttr(), "without groups"),
    ({"groups": 2}, PrimitiveAttr((PostOp.accumulate(),)), "only eltwise"),
    ({}, PrimitiveAttr((PostOp("eltwise", "pow", 1.0, 2.0),)), "no fast product"),
    ({}, PrimitiveAttr(scales=(Quantisation(Arg.SRC),)), "scales are not"),
    ({"prop": "backward_data"}, PrimitiveAttr((PostOp("eltwise", "relu"),)), "takes no scales"),
]


@pytest.mark.parametrize(("changed", "attr", "why"), DECLINED)
def test_what_products_do_not_compute_is_left_to_the_reference(
    changed: dict[str, Any], attr: PrimitiveAttr, why: str
) -> None:
    op = pointwise(**changed)
    assert nested_of(op, attr, cpu_target()) is None
    reason = NestedConvolution("cpu").reject(op, attr, cpu_target())
    assert reason is not None
    assert why in reason


@pytest.mark.parametrize("prop", PROPS[1:])
def test_kernels_of_1_in_float64(native: NativeRunner, prop: str) -> None:
    src, dst = MemoryDesc((2, 5, 4, 3), "f64"), MemoryDesc((2, 19, 4, 3), "f64", "acdb")
    bias = MemoryDesc((19,), "f64") if prop != "backward_data" else None
    weights, none = MemoryDesc((19, 5, 1, 1), "f64"), (0, 0)
    check(native, Convolution(src, weights, bias, dst, (1, 1), none, none, none, 1, prop))


@pytest.mark.parametrize("prop", PROPS[1:])
@pytest.mark.parametrize(
    ("spatial", "kernel", "strides", "dilations", "low", "high", "groups"),
    [
        ((9,), (3,), (2,), (1,), (2,), (1,), 1),
        ((7, 6), (3, 2), (2, 1), (0, 1), (1, 0), (2, 1), 3),
        ((5, 6, 4), (2, 3, 1), (1, 2, 3), (1, 0, 0), (0, 1, 0), (1, 2, 1), 2),
    ],
)
def test_windows_in_float64(
    native: NativeRunner, prop: str, spatial: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...],
    dilations: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...], groups: int,
) -> None:  # fmt: skip
    found = tuple(
        (size + before + behind - (each - 1) * (gap + 1) - 1) // step + 1
        for size, each, step, gap, before, behind in zip(spatial, kernel, strides, dilations, low, high, strict=True)
    )
    src, dst = MemoryDesc((2, 4 * groups, *spatial), "f64"), MemoryDesc((2, 5 * groups, *found), "f64")
    weights = MemoryDesc((5 * groups, 4, *kernel), "f64")
    bias = MemoryDesc((5 * groups,), "f64") if prop != "backward_data" else None
    # Not whole numbers: float32 anywhere would be seen.
    op = Convolution(src, weights, bias, dst, strides, dilations, low, high, groups, prop)
    check(native, op, args=arguments(op, PrimitiveAttr(), 1, -1.0, 1.0))
