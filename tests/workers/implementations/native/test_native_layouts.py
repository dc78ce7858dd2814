"""What native implementations of every operation accept and refuse, and how few kernels they need."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from poolrt.workers.desc import (
    Arg,
    BatchNormalization,
    Binary,
    Eltwise,
    Lrn,
    MemoryDesc,
    OpDesc,
    Pooling,
    PostOp,
    PrimitiveAttr,
    Sum,
    post_op_src,
)
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from poolrt.workers.kernels.spec import KernelSpec
from tests.workers.cases import Array, Case, cases, integers, normals
from tests.workers.native_runner import NativeRunner

KINDS = ("batch_normalization", "binary", "concat", "eltwise", "lrn", "pooling", "softmax", "sum")
RELU = PostOp("eltwise", "relu")
BLOCKED = "aBcd16b"


def md(*dims: int, tag: str = "", dtype: str = "f32") -> MemoryDesc:
    return MemoryDesc(dims, dtype, tag)


def kernels(case: Case) -> tuple[KernelSpec, ...]:
    return primitive_desc(case.op, case.attr, cpu_target()).program().kernels


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_without_elements_needs_no_launch(kind: str) -> None:
    empty = [c for c in cases(kind) if not any(np.prod(m.dims) for a, m in c.op.memories().items() if a == Arg.DST)]
    assert empty
    for case in empty:
        assert primitive_desc(case.op, case.attr, cpu_target()).program().launches == ()


# Of pooling, three algorithms times three widths of windows that move by two, and times eight of planes and two
# of planes with gaps in windows; three for volumes that are pooled along the depth first, and maxima and averages of pairs in
# short rows. Of softmax, rows, strides and short rows that are turned, each with a logarithm and without.
@pytest.mark.parametrize(("kind", "most"), [("pooling", 24 + 9 + 24 + 6 + 3 + 2), ("softmax", 6), ("concat", 1)])
def test_shapes_share_kernels(kind: str, most: int) -> None:
    """A kernel is specialised by algorithm and layout class, a few by the width of a small window or by the vectors of a row.

    There is none for another size.
    """
    every = {spec for layout in ("plain", "blocked") for c in cases(kind, layout) for spec in _kernels_if_accepted(c)}
    assert len(every) <= most


def _kernels_if_accepted(case: Case) -> tuple[KernelSpec, ...]:
    try:
        return primitive_desc(case.op, case.attr, cpu_target(), references=False).program().kernels
    except UnsupportedPrimitive:
        return ()


def test_alpha_and_beta_need_no_kernel_of_their_own() -> None:
    ops = [Eltwise(md(9), md(9), "clip", low, high) for low, high in ((0.0, 6.0), (-1.0, 1.0))]
    assert kernels(Case("a", ops[0], {})) == kernels(Case("b", ops[1], {}))


NONE = (0, 0)
REFUSED: list[tuple[OpDesc, tuple[PostOp, ...], str]] = [
    (Eltwise(md(4, dtype="f16"), md(4), "relu"), (PostOp("eltwise", "tanh"),), "post-ops between f16 and f32"),
    (Eltwise(md(1, 8, 2, 2, tag="aBcd8b"), md(1, 8, 2, 2, tag="any"), "relu"), (), "layout aBcd8b"),
    (Eltwise(md(1, 8, 2, 2, tag=BLOCKED), md(1, 8, 2, 2), "relu"), (), "layouts differ"),
    (Eltwise(md(4), md(4), "softplus", 0.0), (), "divides by alpha"),
    (Sum((md(4), md(4)), md(4)), (PostOp("binary", "add", src1=md(1)),), "the destination"),
    (Sum((md(4),), md(4)), (PostOp("binary", "add", src1=md(4)),) * 2, "more than one binary"),
    (Binary(md(1, 17, 2, 2, tag=BLOCKED), md(1, 17, 2, 2), md(1, 17, 2, 2, tag="any"), "add"), (), "layouts differ"),
    (Binary(md(2, 3, 4), md(2, 3, 4, tag="cba"), md(2, 3, 4), "add"), (), "layouts differ"),
    (
        Pooling(md(1, 1, 2, 2, 2, 2), md(1, 1, 2, 2, 2, 2), "max", (1,) * 4, (1,) * 4, NONE * 2, NONE * 2, NONE * 2),
        (),
        "4 spatial",
    ),
    (
        Pooling(md(1, 3, 2, 2, tag="acdb"), md(1, 3, 2, 2, tag="any"), "max", (1, 1), (1, 1), NONE, NONE, NONE),
        (),
        "acdb",
    ),
    (Lrn(md(1, 40, 2, 2, tag=BLOCKED), md(1, 40, 2, 2, tag="any"), 33, 1.0, 0.75, 1.0), (), "local_size 33"),
]


@pytest.mark.parametrize(("op", "steps", "why"), REFUSED, ids=[why for *_, why in REFUSED])
def test_what_native_kernels_cannot_do_they_decline_with_the_reason(
    op: OpDesc, steps: tuple[PostOp, ...], why: str
) -> None:
    with pytest.raises(UnsupportedPrimitive, match=why):
        primitive_desc(op, PrimitiveAttr(steps), cpu_target(), references=False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_destination_left_open_takes_the_layout_of_the_source(kind: str) -> None:
    for case in cases(kind, "blocked"):
        name = "dst"
        op = dataclasses.replace(case.op, **{name: case.op.memories()[Arg.DST].with_tag("any")})
        try:
            pd = primitive_desc(op, PrimitiveAttr(), cpu_target(), references=False)
        except UnsupportedPrimitive:
            continue
        sources = [m for a, m in pd.memories().items() if a != Arg.DST and m.dims == pd.memories()[Arg.DST].dims]
        assert all(pd.memories()[Arg.DST].tag == s.tag for s in sources)


@pytest.mark.parametrize("tag", ["acdb", "dcba", BLOCKED])
def test_eltwise_takes_any_permutation_and_applies_its_chain(tag: str, isa: str, native: NativeRunner) -> None:
    layout = md(2, 19, 3, 5, tag=tag)
    steps = (PostOp("binary", "mul", src1=layout), PostOp("eltwise", "linear", 2.0, 1.0))
    args: dict[int, Array] = {Arg.SRC: integers(layout.dims), post_op_src(0): integers(layout.dims, "other")}
    native.check(Case(tag, Eltwise(layout, layout, "abs"), args, PrimitiveAttr(steps)), isa)


def test_a_row_major_channel_vector_combines_with_blocked_channels(isa: str, native: NativeRunner) -> None:
    """Constants of a graph are row-major; they need no reorder where only channels vary."""
    wide = md(2, 19, 3, 5, tag=BLOCKED)
    for algorithm in ("mul", "div"):
        op = Binary(wide, md(1, 19, 1, 1), md(2, 19, 3, 5, tag="any"), algorithm)
        args: dict[int, Array] = {Arg.SRC: normals(wide.dims), Arg.SRC_1: integers((1, 19, 1, 1), low=1, high=9)}
        native.check(Case(algorithm, op, args), isa)


@pytest.mark.parametrize("tag", ["", BLOCKED])
def test_batch_normalization_adds_a_residual_before_relu(tag: str, isa: str, native: NativeRunner) -> None:
    case = next(c for c in cases("batch_normalization") if c.name == "(2, 19, 5, 7)")
    layout = md(2, 19, 5, 7, tag=tag)
    steps = (PostOp("binary", "add", src1=layout), RELU)
    args: dict[int, Array] = {**case.args, post_op_src(0): normals(layout.dims, "residual")}
    op = BatchNormalization(layout, layout, 1e-5)
    native.check(Case(f"residual {tag}", op, args, PrimitiveAttr(steps), rtol=1e-6, atol=4e-6), isa)


@pytest.mark.parametrize("tag", ["", BLOCKED])
def test_batch_normalization_keeps_its_precision_around_a_large_mean(tag: str, isa: str, native: NativeRunner) -> None:
    layout = md(1, 5, 4, 4, tag=tag)
    ones = np.ones(5, np.float32)
    src = np.float32(1e5) + integers(layout.dims)
    args: dict[int, Array] = {
        Arg.SRC: src,
        Arg.MEAN: 1e5 * ones,
        Arg.VARIANCE: 4 * ones,
        Arg.SCALE: ones,
        Arg.SHIFT: 0 * ones,
    }
    native.check(Case("large mean", BatchNormalization(layout, layout, 0.0), args, rtol=1e-6), isa)


@pytest.mark.parametrize("size", [31, 32])
def test_lrn_reaches_to_the_end_of_the_neighbouring_block(size: int, isa: str, native: NativeRunner) -> None:
    layout = md(1, 60, 2, 3, tag=BLOCKED)
    op = Lrn(layout, layout, size, 1.0, 0.75, 1.0)
    native.check(Case(f"size {size}", op, {Arg.SRC: normals(layout.dims)}, rtol=4e-6), isa)


def test_batch_normalization_leaves_padded_lanes_zero_where_its_post_op_does_not(
    isa: str, native: NativeRunner
) -> None:
    case = next(c for c in cases("batch_normalization", "blocked") if c.name == "(2, 19, 5, 7) blocked")
    logistic = PrimitiveAttr((PostOp("eltwise", "logistic"),))
    native.check(dataclasses.replace(case, attr=logistic, rtol=4e-6), isa)


@pytest.mark.parametrize("tag", ["", BLOCKED])
@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
def test_pooling_windows_may_lie_outside_of_the_source(
    algorithm: str, tag: str, isa: str, native: NativeRunner
) -> None:
    src, dst = md(1, 3, 1, 2, tag=tag), md(1, 3, 5, 6, tag=tag)
    op = Pooling(src, dst, algorithm, (1, 1), (1, 1), (0, 0), (2, 2), (2, 2))
    native.check(Case(algorithm, op, {Arg.SRC: integers(src.dims)}), isa)
