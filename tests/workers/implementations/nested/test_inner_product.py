"""Inner product on matmul: what is nested, which attributes it takes, and what it leaves to others."""

from __future__ import annotations

from typing import Any

import pytest

from poolrt.workers.desc import Arg, InnerProduct, Matmul, MemoryDesc, PostOp, PrimitiveAttr, Quantisation
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.primitives.key import primitive_key
from tests.workers.implementations.reference.drawing import Runner

from .checking import check, nested_of


def described(src: tuple[int, ...], outputs: int, tag: str = "", dst: str = "", weights: str = "any") -> InnerProduct:
    return InnerProduct(
        MemoryDesc(src, "f32", tag), MemoryDesc((outputs, *src[1:]), "f32", weights), MemoryDesc((outputs,), "f32"),
        MemoryDesc((src[0], outputs), "f32", dst),
    )  # fmt: skip


def test_post_ops_are_those_of_the_product(runner: Runner) -> None:
    op = described((6, 8, 3, 3), 20, "aBcd4b")
    attr = PrimitiveAttr((PostOp("binary", "add", src1=op.dst), PostOp("eltwise", "relu")))
    check(runner, op, attr)


@pytest.mark.parametrize("tag", ["abcd", "acdb", "bcda"])
def test_weights_left_open_need_no_reorder(runner: Runner, tag: str) -> None:
    pd = check(runner, described((5, 16, 3, 2), 24, tag if tag != "bcda" else ""))
    assert [inner.op.kind for inner in pd.nested()] == ["matmul"]


def test_the_product_is_the_one_that_a_user_gets_who_multiplies_matrices() -> None:
    op = described((6, 8, 3), 20)
    (inner,) = primitive_desc(op, PrimitiveAttr(), cpu_target()).nested()
    src, weights, bias, dst = (MemoryDesc(dims, "f32") for dims in ((6, 24), (24, 20), (1, 20), (6, 20)))
    product = Matmul(src, weights.with_tag("any"), bias, dst)
    assert primitive_key(inner) == primitive_key(primitive_desc(product, PrimitiveAttr(), cpu_target()))


def test_rows_that_do_not_lie_together_are_reordered_first(runner: Runner) -> None:
    pd = check(runner, described((5, 16, 3, 2), 24, "aBcd16b"))
    assert [inner.op.kind for inner in pd.nested()] == ["reorder", "matmul"]


@pytest.mark.parametrize("src", ["u8", "s8"])
@pytest.mark.parametrize("shape", [(7, 33), (3, 5, 2, 3)])
def test_8_bit_integers_are_multiplied_exactly(native: Runner, src: str, shape: tuple[int, ...]) -> None:
    op = InnerProduct(
        MemoryDesc(shape, src), MemoryDesc((19, *shape[1:]), "s8", "any"), None, MemoryDesc((shape[0], 19), "s32"),
    )  # fmt: skip
    check(native, op)
    check(
        native,
        op,
        PrimitiveAttr(zero_points=(Quantisation(Arg.SRC), Quantisation(Arg.WEIGHTS), Quantisation(Arg.DST, 2))),
    )


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_weights_of_16_bits_are_packed_and_not_converted_beforehand(native: Runner, dtype: str) -> None:
    op = InnerProduct(
        MemoryDesc((6, 8, 3), dtype), MemoryDesc((20, 8, 3), dtype, "any"), MemoryDesc((20,), dtype),
        MemoryDesc((6, 20), dtype),
    )  # fmt: skip
    pd = check(native, op, PrimitiveAttr((PostOp("eltwise", "relu"),)))
    assert primitive_desc(op, PrimitiveAttr(), cpu_target()).impl_name() == "nested:matmul"
    assert [(inner.op.kind, inner.op.memories()[Arg.WEIGHTS].dtype) for inner in pd.nested()] == [("matmul", dtype)]


def test_the_fast_way_for_matrices_comes_first() -> None:
    assert primitive_desc(described((4, 32), 16), PrimitiveAttr(), cpu_target()).impl_name() == "native:tiles"


DECLINED: list[tuple[dict[str, Any], PrimitiveAttr]] = [
    ({"dtype": "bf16", "dst": "s32"}, PrimitiveAttr()),
    ({"dtype": "bf16", "prop": "backward_data"}, PrimitiveAttr()),
    ({}, PrimitiveAttr((PostOp("eltwise", "pow", 1.0, 2.0),))),
    ({}, PrimitiveAttr(scales=(Quantisation(Arg.SRC),))),
    ({"dtype": "u8", "weights": "s8", "dst": "s32"}, PrimitiveAttr(zero_points=(Quantisation(Arg.SRC, 4),))),
    ({"dtype": "u8", "weights": "s8", "dst": "s32"}, PrimitiveAttr(zero_points=(Quantisation(Arg.WEIGHTS, 2),))),
    ({"prop": "backward_data"}, PrimitiveAttr((PostOp("eltwise", "relu"),))),
]


@pytest.mark.parametrize("number", range(len(DECLINED)))
def test_what_no_fast_product_takes_is_left_to_the_reference(number: int) -> None:
    types, attr = DECLINED[number]
    dtype = types.get("dtype", "f32")
    op = InnerProduct(
        MemoryDesc((4, 8, 3), dtype), MemoryDesc((6, 8, 3), types.get("weights", dtype)), None,
        MemoryDesc((4, 6), types.get("dst", dtype)), types.get("prop", "forward_inference"),
    )  # fmt: skip
    assert nested_of(op, attr, cpu_target()) is None
