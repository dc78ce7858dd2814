"""What verbose lines say of primitives: oneDNN's fields for every operation."""

from __future__ import annotations

import re

import pytest

from poolrt.workers.desc import (
    Arg,
    Convolution,
    InnerProduct,
    MemoryDesc,
    OpDesc,
    Pooling,
    PostOp,
    PrimitiveAttr,
    Quantisation,
)
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.primitives.primitive_desc import primitive_desc
from poolrt.workers.verbose_text import described

from .cases import KINDS, cases

MEMORY = re.compile(r"[a-z_]+\d*_[a-z]\w*:p?:blocked:[a-lA-L0-9]*:[\dx]*:f0")


def fields(op: OpDesc, attr: PrimitiveAttr | None = None) -> list[str]:
    return described(primitive_desc(op, attr or PrimitiveAttr(), cpu_target())).split(",")


def md(*dims: int, tag: str = "", dtype: str = "f32") -> MemoryDesc:
    return MemoryDesc(dims, dtype, tag)


@pytest.mark.parametrize("kind", KINDS)
def test_every_case_of_an_operation_has_all_fields_and_well_formed_memories(kind: str) -> None:
    for case in [*cases(kind), *cases(kind, "blocked")]:
        engine, name, implementation, prop, memories, _, problem = fields(case.op, case.attr)
        assert (engine, name) == ("cpu", kind)
        assert ":" in implementation
        assert prop == getattr(case.op, "prop", "undef")
        found = memories.split(" ")
        assert len(found) == len(case.op.memories())
        assert all(MEMORY.fullmatch(memory) for memory in found), memories
        assert problem


def test_a_convolution_is_described_as_by_onednn() -> None:
    window = ((2, 2), (1, 0), (1, 0), (1, 0))
    op = Convolution(md(1, 8, 9, 7), md(6, 4, 3, 1), md(6), md(1, 6, 4, 4), *window, groups=2)
    chain = PrimitiveAttr((PostOp("eltwise", "clip", -1.0, 1.0), PostOp("binary", "mul", src1=md(1, 6, 1, 1))))
    *_, prop, memories, attributes, problem = fields(op, chain)
    assert prop == "forward_inference"
    assert [memory.partition("_")[0] for memory in memories.split(" ")] == ["src", "wei", "bia", "dst"]
    assert attributes == "attr-post-ops:eltwise_clip:-1:1+binary_mul:f32:2:abcd"
    assert problem == "mb1_g2ic8oc6_ih9oh4kh3sh2dh1ph1_iw7ow4kw1sw2dw0pw0"


def test_pooling_and_inner_product_tell_their_problem_and_its_parameters() -> None:
    op = Pooling(md(2, 3, 8), md(2, 3, 4), "max", (2,), (2,), (0,), (0,), (0,))
    assert fields(op)[-2:] == ["alg:pooling_max", "mb2ic3_iw8ow4kw2sw2dw0pw0"]
    product = InnerProduct(md(2, 3, 4, 5), md(7, 3, 4, 5), None, md(2, 7))
    assert fields(product)[-1] == "mb2ic3ih4iw5oc7"


def test_padding_strides_and_all_attributes_are_told() -> None:
    src = MemoryDesc((2, 6), "f32", (8, 1))
    attr = PrimitiveAttr(
        (PostOp.accumulate(0.5),), (Quantisation(Arg.SRC, 0), Quantisation(Arg.WEIGHTS, 1, (1.0,) * 3)),
        (Quantisation(Arg.DST),), "bf16", "user", True,
    )  # fmt: skip
    *_, memories, attributes, _ = fields(InnerProduct(src, md(3, 6, tag="Ab16a"), None, md(2, 3)), attr)
    assert memories.split(" ")[:2] == ["src_f32::blocked:ab:8x1:f0", "wei_f32:p:blocked:Ab16a::f0"]
    assert attributes.split(" ") == [
        "attr-scratchpad:user", "attr-fpmath:bf16", "attr-deterministic:true", "attr-scales:src:0+wei:1:constant",
        "attr-zero-points:dst:0", "attr-post-ops:sum:0.5:0",
    ]  # fmt: skip
