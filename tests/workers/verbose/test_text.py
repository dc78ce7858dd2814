"""What verbose lines say of primitives: oneDNN's fields for every operation."""

from __future__ import annotations

import re
import select

import pytest

from poolrt.workers.desc import (
    Arg,
    BatchNormalization,
    Concat,
    Convolution,
    InnerProduct,
    Lstm,
    Matmul,
    MemoryDesc,
    OpDesc,
    Pooling,
    PostOp,
    PrimitiveAttr,
    Quantisation,
    Reorder,
    Sum,
)
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.verbose.text import describe_primitive

from ..cases import KINDS, cases

MEMORY = re.compile(r"[a-z_]+\d*:[a-z]\w*:p?:blocked:[a-lA-L0-9]*:[\dx]*:f0(_mask\d+)?")


def fields(op: OpDesc, attr: PrimitiveAttr | None = None) -> list[str]:
    return describe_primitive(primitive_desc(op, attr or PrimitiveAttr(), cpu_target())).split(",")


def md(*dims: int, tag: str = "", dtype: str = "f32") -> MemoryDesc:
    return MemoryDesc(dims, dtype, tag)


@pytest.mark.parametrize("kind", KINDS)
def test_every_case_of_an_operation_has_all_fields_and_well_formed_memories(kind: str) -> None:
    for case in [*cases(kind), *cases(kind, "blocked")]:
        engine, name, implementation, prop, memories, attributes, problem = fields(case.op, case.attr)
        assert (engine, name) == ("cpu", kind)
        assert ":" in implementation
        assert prop == getattr(case.op, "prop", "undef")
        found = memories.split(" ")
        assert len(found) == len(case.op.memories())
        assert all(MEMORY.fullmatch(memory) for memory in found), memories
        flags = [part.startswith("attr-") for part in attributes.split()]
        assert flags == sorted(flags, reverse=True), attributes
        assert problem


def test_a_convolution_is_described_as_by_onednn() -> None:
    window = ((2, 2), (1, 0), (1, 0), (1, 0))
    op = Convolution(md(1, 8, 9, 7), md(6, 4, 3, 1), md(6), md(1, 6, 4, 4), *window, groups=2)
    chain = PrimitiveAttr((PostOp("eltwise", "clip", -1.0, 1.0), PostOp("binary", "mul", src1=md(1, 6, 1, 1))))
    *_, prop, memories, attributes, problem = fields(op, chain)
    assert prop == "forward_inference"
    assert [memory.partition(":")[0] for memory in memories.split(" ")] == ["src", "wei", "bia", "dst"]
    assert attributes == "attr-post-ops:eltwise_clip:-1:1+binary_mul:f32:2:abcd alg:convolution_direct"
    assert problem == "g2mb1_ic8oc6_ih9oh4kh3sh2dh1ph1_iw7ow4kw1sw2dw0pw0"


def test_pooling_and_inner_product_tell_their_problem_and_its_parameters() -> None:
    op = Pooling(md(2, 3, 8), md(2, 3, 4), "max", (2,), (2,), (0,), (0,), (0,))
    assert fields(op)[-2:] == ["alg:pooling_max", "mb2ic3_iw8ow4kw2sw2dw0pw0"]
    product = InnerProduct(md(2, 3, 4, 5), md(7, 3, 4, 5), None, md(2, 7))
    assert fields(product)[-1] == "mb2ic3ih4iw5oc7"


def test_padding_strides_and_all_attributes_are_in_the_line() -> None:
    src = MemoryDesc((2, 6), "f32", (8, 1))
    attr = PrimitiveAttr(
        (PostOp.accumulate(0.5),), (Quantisation(Arg.SRC, 0), Quantisation(Arg.WEIGHTS, 1, (1.0,) * 3)),
        (Quantisation(Arg.DST),), "bf16", "user", True,
    )  # fmt: skip
    *_, memories, attributes, _ = fields(InnerProduct(src, md(3, 6, tag="Ab16a"), None, md(2, 3)), attr)
    assert memories.split(" ")[:2] == ["src:f32::blocked:ab:8x1:f0", "wei:f32:p:blocked:Ab16a::f0"]
    assert attributes.split(" ") == [
        "attr-scratchpad:user", "attr-fpmath:bf16", "attr-deterministic:1",
        "attr-scales:src0:0:f32+wei:1:f32:constant", "attr-zero-points:dst:0:s32", "attr-post-ops:sum:0.5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (PostOp("eltwise", "relu"), "eltwise_relu"),
        (PostOp("eltwise", "relu", 0.25), "eltwise_relu:0.25"),
        (PostOp("eltwise", "linear", 0.0, 2.0), "eltwise_linear:0:2"),
        (PostOp.accumulate(), "sum"),
        (PostOp.accumulate(1.0, 3), "sum:1:3"),
        (PostOp.accumulate(dtype="f32"), "sum:1:0:f32"),
    ],
)
def test_a_post_op_is_described_without_defaults(step: PostOp, text: str) -> None:
    op = InnerProduct(md(2, 6), md(3, 6), None, md(2, 3))
    assert fields(op, PrimitiveAttr((step,)))[-2] == f"attr-post-ops:{text}"


def test_the_bias_of_a_product_tells_along_which_dimensions_it_varies() -> None:
    op = Matmul(md(4, 5), md(5, 6), md(1, 6), md(4, 6))
    assert fields(op)[4].split(" ")[2] == "bia:f32::blocked:ab::f0_mask2"


def test_a_recurrent_operation_has_the_arguments_and_the_cell_of_onednn() -> None:
    weights, state = md(1, 1, 4, 4, 4), md(1, 1, 2, 4)
    op = Lstm(
        md(3, 2, 4), state, state, weights, weights, md(1, 1, 4, 4), md(3, 2, 4), state, state, direction="right2left"
    )
    *_, memories, auxiliary, problem = fields(op)
    assert [memory.partition(":")[0] for memory in memories.split(" ")] == [
        "src_layer", "src_iter", "src_iter_c", "wei_layer", "wei_iter", "bias", "dst_layer", "dst_iter", "dst_iter_c",
    ]  # fmt: skip
    assert auxiliary == "alg:vanilla_lstm direction:unidirectional_right2left activation:undef flags:"
    assert problem == "l1t3mb2sic4slc4dhc4dic4"


def test_a_normalisation_tells_its_flags_as_letters_and_a_sum_the_shape_of_its_result() -> None:
    flags = ("use_shift", "use_global_stats", "use_scale")
    normalised = BatchNormalization(md(1, 8, 4, 4), md(1, 8, 4, 4), 1e-5, flags)
    assert fields(normalised)[-2:] == ["flags:GCH epsilon:1e-05", "mb1ic8ih4iw4"]
    assert fields(Sum((md(2, 3), md(2, 3)), md(2, 3), (1.0, 2.0)))[-2:] == ["scales:1+2", "2x3"]


def test_an_engine_that_is_not_the_first_of_its_kind_has_its_index() -> None:
    pd = primitive_desc(Reorder(md(2, 3), md(2, 3)), PrimitiveAttr(), cpu_target())
    assert [describe_primitive(pd, index).partition(",")[0] for index in (0, 1)] == ["cpu", "cpu:1"]


def test_a_reorder_between_engines_names_both() -> None:
    assert fields(Reorder(md(2, 3), md(2, 3)))[0] == "cpu"
    assert fields(Reorder(md(2, 3), md(2, 3), "cpu", "opencl"))[0] == "cpu2opencl"


def test_fields_are_shortened_so_that_a_line_fits_into_what_a_pipe_takes_in_one_piece() -> None:
    src = md(1, 2, 3, 4)
    long = fields(Concat((src,) * 400, md(1, 800, 3, 4), 1))
    assert [len(field) for field in long[4:]] == [900, 6, 900]
    assert long[4].endswith("...")
    most = len("poolrt_verbose,create:persistent_cache_hit,") + 4 * 901 + len(",".join(long[:4])) + len("123456.789\n")
    assert most <= select.PIPE_BUF
