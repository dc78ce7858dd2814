"""Deconvolution on native kernels and nested products, on values whose sums are exact."""

from __future__ import annotations

import dataclasses

import pytest

from poolrt.workers.desc import Arg, Deconvolution, MemoryDesc, PostOp, PrimitiveAttr, post_op_src
from poolrt.workers.engines.target import cpu_target, host_isa
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc, primitive_descs
from poolrt.workers.implementations.program import NestedLaunch
from poolrt.workers.kernels.native.limits import INTERLEAVED
from tests.workers.cases import Case, integers
from tests.workers.desc.windows import Channels, Window, deconvolution
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

TYPES = ("f32", "f32", "f32")
NONE = (0, 0)
#: Strides along the width of 1 to 8 and more; rows shorter and longer than vectors; dilations, paddings unlike on both sides.
WINDOWS = (
    Window((9, 40), (3, 3), (1, 1), (0, 1), (1, 1), (1, 1)),
    Window((8, 70), (4, 4), (2, 2), (1, 0), (1, 1), (1, 1)),
    Window((7, 95), (3, 5), (2, 3), (1, 0), (0, 2), (2, 1)),
    Window((90,), (7,), (4,), (1,), (2,), (1,)),
    Window((167,), (8,), (5,), (0,), (0,), (3,)),
    Window((101,), (3,), (6,), (0,), (0,), (0,)),
    Window((130,), (9,), (7,), (0,), (4,), (0,)),
    Window((3, 81), (5, 2), (2, 8), (0, 1), (1, 0), NONE),
    Window((40,), (3,), (15,), (0,), (0,), (0,)),
    Window((95,), (3,), (40,), (1,), (0,), (3,)),
    Window((5, 6, 37), (2, 3, 4), (1, 2, 2), (0, 0, 1), (1, 0, 2), (0, 1, 3)),
)


def case(
    window: Window, channels: Channels, attr: PrimitiveAttr | None = None, types: tuple[str, str, str] = TYPES
) -> Case:
    """Return a problem: sizes of ``window`` are those of dst."""
    op = deconvolution(window, channels, "forward_inference", types, True)
    args = {
        int(arg): integers(md.dims, int(arg), low=-3, high=3) for arg, md in op.memories().items() if arg != Arg.DST
    }
    return Case(f"{window} {channels}", op, args, attr or PrimitiveAttr())


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: f"{window.strides}")
def test_taps_overlap_at_any_stride(native: NativeRunner, window: Window) -> None:
    shorter = all(size < step for size, step in zip(window.kernel, window.strides, strict=True))
    products = "nested:phases" if shorter and window.strides[-1] in INTERLEAVED else "nested:matmul"
    for channels, name in ((Channels(2, 3, 1, 1), "native:depthwise"), (Channels(2, 2, 3, 5), products)):
        problem = case(window, channels)
        found = primitive_descs(problem.op, problem.attr, cpu_target())
        assert found[0].impl_name() == name
        native.check(problem, host_isa())


def test_depthwise_weights_in_another_layout_are_reordered(native: NativeRunner) -> None:
    problem = case(WINDOWS[2], Channels(2, 3, 1, 1))
    assert isinstance(problem.op, Deconvolution)
    op = dataclasses.replace(problem.op, weights=problem.op.weights.with_tag("abdc"))
    found = [pd for pd in primitive_descs(op, problem.attr, cpu_target()) if pd.impl_name() == "native:depthwise"]
    assert [len(pd.nested()) for pd in found] == [1]
    native.check(dataclasses.replace(problem, op=op), host_isa())


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: f"{window.strides}")
@pytest.mark.parametrize(
    ("channels", "name"), [(Channels(2, 3, 1, 1), "native:depthwise"), (Channels(2, 2, 3, 5), "nested:matmul")]
)
@pytest.mark.one_in(4)
def test_float64_is_computed_as_such(
    native: NativeRunner, isa: str, window: Window, channels: Channels, name: str
) -> None:
    problem = case(window, channels, types=("f64", "f64", "f64"))
    # Numbers that float32 does not hold, whose sums are exact in float64
    args = {**problem.args, int(Arg.SRC): problem.args[Arg.SRC] * (2.0**31 + 1.0)}
    assert primitive_desc(problem.op, problem.attr, target_of(isa)).impl_name() == name
    native.check(Case(problem.name, problem.op, args, problem.attr), isa)
    md = problem.op.memories()[Arg.DST]
    steps = (PostOp("binary", "add", src1=md), PostOp("eltwise", "relu"))
    args = {**problem.args, post_op_src(0): integers(md.dims, "added")}
    native.check(Case("chain", problem.op, args, PrimitiveAttr(steps)), isa)


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: f"{window.strides}")
@pytest.mark.parametrize("channels", [Channels(1, 5, 1, 3), Channels(3, 1, 17, 16)], ids=str)
def test_taps_overlap_on_every_level(native: NativeRunner, isa: str, window: Window, channels: Channels) -> None:
    problem = case(window, channels)
    md = problem.op.memories()[Arg.DST]
    steps = (PostOp("binary", "add", src1=md), PostOp("eltwise", "relu"))
    native.check(problem, isa)
    args = {**problem.args, post_op_src(0): integers(md.dims, "added")}
    native.check(Case("chain", problem.op, args, PrimitiveAttr(steps)), isa)


@pytest.mark.parametrize(
    ("window", "channels", "products"),
    [
        # Images one after the other
        (Window((34, 34), (5, 5), (2, 2), (0, 0), (1, 1), (1, 1)), Channels(3, 1, 2, 100), 3),
        # Two groups at once, and then the third, for each image
        (Window((34, 34), (5, 5), (2, 2), (0, 0), (1, 1), (1, 1)), Channels(2, 3, 2, 60), 4),
        # Parts of 127, 127 and 126 outputs of each group
        (Window((34, 34), (5, 5), (2, 2), (0, 0), (1, 1), (1, 1)), Channels(1, 2, 3, 380), 6),
    ],
    ids=("images", "groups", "outputs"),
)
def test_products_stay_in_the_cache_until_they_are_added_up(
    native: NativeRunner, window: Window, channels: Channels, products: int
) -> None:
    problem = case(window, channels)
    pd = primitive_desc(problem.op, problem.attr, cpu_target())
    assert pd.impl_name() == "nested:matmul"
    # The first nested launch reorders the weights.
    assert sum(isinstance(launch, NestedLaunch) for launch in pd.program().launches) == 1 + products
    assert pd.program().scratchpad < 1 << 23
    native.check(problem, host_isa())
    md = problem.op.memories()[Arg.DST]
    steps = (PostOp("binary", "add", src1=md), PostOp("eltwise", "relu"))
    args = {**problem.args, post_op_src(0): integers(md.dims, "added")}
    native.check(Case("chain", problem.op, args, PrimitiveAttr(steps)), host_isa())


def test_large_images_have_products_of_some_rows_at_once() -> None:
    op = case(Window((1026, 1026), (3, 3), (1, 1), (0, 0), (0, 0), (0, 0)), Channels(1, 1, 2, 30)).op
    program = primitive_desc(op, PrimitiveAttr(), cpu_target()).program()
    # More than the 1 GiB that one product may take: a reorder of weights, and 30 products of the 9 taps of an output
    assert sum(isinstance(launch, NestedLaunch) for launch in program.launches) == 31
    assert program.scratchpad < 1 << 26


def test_constant_weights_are_reordered_once_by_a_graph(native: NativeRunner) -> None:
    op = case(WINDOWS[0], Channels(1, 1, 8, 8)).op
    assert isinstance(op, Deconvolution)
    opened = Deconvolution(
        op.src, op.weights.with_tag("any"), op.bias, op.dst, op.strides, op.dilations, op.padding_l, op.padding_r
    )
    pd = primitive_desc(opened, PrimitiveAttr(), cpu_target())
    assert pd.memories()[Arg.WEIGHTS].tag == "acdb"
    assert not any("reorder" in str(spec.generator) for spec in pd.program().kernels)


def test_what_the_kernels_cannot_do_is_refused_with_the_reason() -> None:
    blocked = MemoryDesc((1, 16, 4, 4), "f32", "aBcd16b")
    weights = MemoryDesc((16, 16, 1, 1), "f32")
    wide = deconvolution(
        Window((70,), (3,), (65,), (0,), (0,), (0,)), Channels(1, 1, 2, 2), "forward_inference", TYPES, True
    )
    for op, why in (
        (Deconvolution(blocked, weights, None, blocked, (1, 1), (0, 0), (0, 0), (0, 0)), "must be row-major"),
        (wide, "stride 65"),
    ):
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, PrimitiveAttr(), cpu_target(), references=False)


def test_more_dimensions_than_kernels_have_are_left_to_the_reference(native: NativeRunner) -> None:
    for groups, inputs, outputs in ((1, 2, 3), (3, 1, 2)):
        ones, none = (1, 1, 1, 1), (0, 0, 0, 0)
        window = Window((3, 2, 4, 3), (2, 1, 2, 1), (1, 2, 1, 1), none, (1, 0, 0, 0), ones)
        problem = case(window, Channels(1, groups, inputs, outputs))
        assert primitive_desc(problem.op, problem.attr, cpu_target()).impl_name() == "ref:deconvolution"
        native.check(problem, host_isa())
