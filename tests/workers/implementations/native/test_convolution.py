"""Convolution on the CPU engine: every implementation against the definition, its choice, and the work it describes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Convolution, MemoryDesc, PostOp, PrimitiveAttr, post_op_src
from poolrt.workers.engines.target import Target, cpu_target
from poolrt.workers.implementations.native.convolution_tiles import tiling
from poolrt.workers.implementations.native.convolution_walks import Walks, corners, line_of, spare_of, taps_of, trims_of
from poolrt.workers.implementations.native.convolution_window import Window
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc, primitive_descs
from poolrt.workers.kernels.spec import KernelSpec
from tests.workers.cases import Case, cases, integers
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner


def open_layouts(case: Case) -> Case:
    """Return a case with the layouts of src, weights and dst left to the implementation."""
    op: Any = case.op
    changed = {name: getattr(op, name).with_tag("any") for name in ("src", "weights", "dst")}
    return dataclasses.replace(case, op=dataclasses.replace(op, **changed))


def completed(case: Case, isa: str) -> list[Case]:
    """Return a case once for each implementation made for speed that takes it, in the layouts which that one chooses."""
    found = []
    opened = open_layouts(case)
    for pd in primitive_descs(opened.op, PrimitiveAttr(), target_of(isa)):
        if pd.impl_name() == "ref:convolution":
            continue
        dst = pd.memories()[Arg.DST]
        steps = tuple(dataclasses.replace(p, src1=dst) if p.src1 else p for p in case.attr.post_ops)
        name = f"{case.name} {pd.impl_name()}"
        found.append(dataclasses.replace(case, name=name, op=pd.op, attr=PrimitiveAttr(steps)))
    return found


@pytest.mark.parametrize("case", cases("convolution"), ids=str)
def test_every_implementation_computes_the_definition(native: NativeRunner, case: Case, isa: str) -> None:
    variants = completed(case, isa)
    assert variants
    for variant in variants:
        native.check(variant, isa)


@pytest.mark.parametrize("case", [*cases("convolution")[::4], *cases("convolution", "blocked")[::4]], ids=str)
def test_layouts_that_are_given_are_kept(native: NativeRunner, case: Case, isa: str) -> None:
    native.check(case, isa)


def convolution(
    ic: int, oc: int, size: int, kernel: int, stride: int = 1, groups: int = 1, rank: int = 2
) -> Convolution:
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1

    def md(*dims: int) -> MemoryDesc:
        return MemoryDesc(dims, "f32", "any")

    return Convolution(
        md(1, ic, *(size,) * rank), md(oc, ic // groups, *(kernel,) * rank), None, md(1, oc, *(out,) * rank),
        (stride,) * rank, (0,) * rank, (pad,) * rank, (pad,) * rank, groups,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("op", "name", "weights"),
    [
        (convolution(64, 64, 56, 3), "native:blocked", "ABcd16b16a"),
        (convolution(3, 64, 224, 7, 2), "native:few_channels", "Acdb16a"),
        (convolution(272, 272, 14, 3, groups=272), "native:depthwise", "Abcd16a"),
        (convolution(96, 256, 27, 5, groups=2), "native:blocked", "ABcd16b16a"),
        (convolution(272, 112, 14, 1, groups=4), "native:grouped", "ABcd16b28a"),
        (convolution(16, 16, 9, 3, rank=3), "native:blocked", "ABcde16b16a"),
        (convolution(3, 16, 9, 3, rank=3), "native:few_channels", "Acdeb16a"),
        (convolution(40, 40, 9, 3, groups=40, rank=3), "native:depthwise", "Abcde16a"),
        (convolution(24, 40, 9, 3, groups=2, rank=3), "native:grouped", "ABcde16b20a"),
    ],
)
def test_the_best_implementation_is_chosen(op: Convolution, name: str, weights: str) -> None:
    pd = primitive_desc(op, PrimitiveAttr(), cpu_target())
    assert (pd.impl_name(), pd.memories()[Arg.WEIGHTS].tag) == (name, weights)


@pytest.mark.parametrize(("isa", "weights"), [("x86-64-v3", "ABcde16b4a"), ("x86-64-v4", "Acdeb16a")])
def test_groups_that_share_blocks_have_weights_in_the_order_of_the_kernel(isa: str, weights: str) -> None:
    pd = primitive_desc(
        convolution(128, 128, 9, 3, groups=32, rank=3), PrimitiveAttr(), Target("cpu", "native", (("isa", isa),))
    )
    assert (pd.impl_name(), pd.memories()[Arg.WEIGHTS].tag) == ("native:grouped", weights)


@pytest.mark.parametrize(
    "step",
    [
        PostOp("eltwise", "tanh"),
        PostOp("eltwise", "relu", 0.1),
        PostOp("binary", "mul", src1=MemoryDesc((1, 1, 1, 1), "f32")),
    ],
)
def test_post_ops_that_are_not_supported_are_refused_with_a_reason(step: PostOp) -> None:
    op, attr = convolution(16, 16, 8, 3), PrimitiveAttr((step,))
    with pytest.raises(UnsupportedPrimitive, match="only relu and add"):
        primitive_desc(op, attr, cpu_target(), references=False)
    assert primitive_desc(op, attr, cpu_target()).impl_name() == "ref:convolution"


def test_few_kernels_serve_all_convolutions_of_a_residual_network() -> None:
    specs: set[KernelSpec] = set()
    for stage, width in enumerate((64, 128, 256, 512)):
        size = 56 >> stage
        inputs = 64 if stage == 0 else 2 * width
        stride = 1 if stage == 0 else 2
        for op in (
            convolution(inputs, width, size * stride, 1, stride),
            convolution(width, width, size, 3),
            convolution(width, 4 * width, size, 1),
            convolution(4 * width, width, size, 1),
            convolution(inputs, 4 * width, size * stride, 1, stride),
        ):
            dst = MemoryDesc(op.dst.dims, "f32", "aBcd16b")
            for chain in (
                (),
                (PostOp("eltwise", "relu"),),
                (PostOp("binary", "add", src1=dst), PostOp("eltwise", "relu")),
            ):
                specs.update(primitive_desc(op, PrimitiveAttr(chain), target_of("x86-64-v4")).program().kernels)
    specs.update(
        primitive_desc(convolution(3, 64, 224, 7, 2), PrimitiveAttr(), target_of("x86-64-v4")).program().kernels
    )
    assert len(specs) <= 8


@pytest.mark.parametrize(
    ("size", "kernel", "strides", "apart", "before", "channels"),
    [
        pytest.param((33, 33), (3, 3), (1, 1), 12, 12, (32, 16), id="planes of three tiles a row"),
        pytest.param((9, 10), (3, 2), (1, 1), 7, 8, (33, 17), id="a dilation of most of a plane"),
        pytest.param((15, 28), (3, 3), (1, 1), 12, 12, (17, 40), id="tiles that end where taps change"),
        pytest.param((4, 4), (3, 3), (1, 1), 6, 6, (16, 16), id="only the middle is inside"),
        pytest.param((30, 20), (3, 3), (1, 1), 17, 17, (32, 16), id="columns of padding that no tile reads"),
        pytest.param((20, 17), (3, 3), (1, 1), 20, 20, (16, 33), id="the source itself instead of a copy"),
        pytest.param((3, 3), (1, 1), (1, 1), 1, 4, (16, 16), id="tiles in padding"),
        pytest.param((21, 30), (3, 3), (2, 3), 5, 5, (20, 40), id="strides"),
        pytest.param((40,), (5,), (1,), 9, 18, (48, 16), id="rows"),
        pytest.param((5, 6, 15), (3, 3, 3), (1, 1, 1), 3, 3, (16, 32), id="volumes"),
    ],
)
def test_taps_that_read_only_padding_are_left_out(
    native: NativeRunner, isa: str, size: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], apart: int,
    before: int, channels: tuple[int, int],
) -> None:  # fmt: skip
    ic, oc = channels
    out = tuple(
        (s + 2 * before - (k - 1) * apart - 1) // step + 1 for s, k, step in zip(size, kernel, strides, strict=True)
    )
    pads, gaps = (before,) * len(size), (apart - 1,) * len(size)

    def md(*dims: int) -> MemoryDesc:
        return MemoryDesc(dims, "f32", "any")

    op = Convolution(md(2, ic, *size), md(oc, ic, *kernel), md(oc), md(2, oc, *out), strides, gaps, pads, pads, 1)
    args = {
        int(arg): integers(dims, arg)
        for arg, dims in ((Arg.SRC, op.src.dims), (Arg.WEIGHTS, op.weights.dims), (Arg.BIAS, (oc,)))
    }
    for variant in completed(Case("far taps", op, args, rtol=0), isa):
        native.check(variant, isa)


@pytest.mark.parametrize(
    ("size", "kernel", "step", "before", "behind", "images"),
    [
        pytest.param((9, 30), (3, 3), 1, (1, 1), (1, 1), 1, id="tiles at either end and between"),
        pytest.param((5, 9), (3, 5), 1, (1, 2), (1, 2), 2, id="a row of one tile"),
        pytest.param((8, 15), (5, 3), 2, (2, 0), (1, 2), 1, id="every second row, padding behind"),
        pytest.param((6, 11), (3, 1), 1, (1, 0), (1, 0), 1, id="padding of rows alone"),
        pytest.param((17,), (4,), 1, (2,), (1,), 3, id="one dimension"),
        pytest.param((3, 4, 16), (3, 3, 3), 1, (1, 1, 1), (1, 1, 1), 1, id="slabs"),
    ],
)
def test_tiles_leave_out_positions_in_padding(
    native: NativeRunner, isa: str, size: tuple[int, ...], kernel: tuple[int, ...], step: int, before: tuple[int, ...],
    behind: tuple[int, ...], images: int,
) -> None:  # fmt: skip
    strides, dense = (*(step,) * (len(size) - 1), 1), (0,) * len(size)
    sizes = zip(size, kernel, strides, before, behind, strict=True)
    out = tuple((s + first + last - k) // stride + 1 for s, k, stride, first, last in sizes)

    def md(*dims: int) -> MemoryDesc:
        return MemoryDesc(dims, "f32", "any")

    op = Convolution(
        md(images, 40, *size), md(56, 40, *kernel), md(56), md(images, 56, *out), strides, dense, before, behind, 1
    )
    args = {
        int(arg): integers(dims, arg)
        for arg, dims in ((Arg.SRC, op.src.dims), (Arg.WEIGHTS, op.weights.dims), (Arg.BIAS, (56,)))
    }
    window = Window.of(op)
    assert trims_of(window, tiling("x86-64-v4", *window.out, 1), "x86-64-v4")
    for variant in completed(Case("trimmed", op, args, rtol=0), isa):
        native.check(variant, isa)


def test_images_share_the_weights_that_no_cache_keeps(native: NativeRunner, isa: str) -> None:
    src, dst = (MemoryDesc((3, channels, 6, 5), "f32", "aBcd16b") for channels in (272, 250))
    weights = MemoryDesc((250, 272, 3, 3), "f32", "any")
    op = Convolution(src, weights, MemoryDesc((250,), "f32"), dst, (1, 1), (0, 0), (1, 1), (1, 1), 1)
    attr = PrimitiveAttr((PostOp("binary", "add", src1=dst), PostOp("eltwise", "relu")))
    places = {int(Arg.SRC): src.dims, int(Arg.WEIGHTS): weights.dims, int(Arg.BIAS): (250,), post_op_src(0): dst.dims}
    pd = primitive_desc(op, attr, target_of(isa))
    assert pd.impl_name() == "native:blocked"
    args = {arg: integers(dims, arg) for arg, dims in places.items()}
    native.check(Case("images", pd.op, args, attr, rtol=0), isa)


@pytest.mark.parametrize("chain", ["", "relu", "add relu", "relu add"])
@pytest.mark.parametrize(
    ("size", "kernel", "apart", "inputs", "outputs", "groups"),
    [
        pytest.param((13, 20), 3, 6, 1000, 40, 1, id="a last block of half the inputs"),
        pytest.param((5, 9), 1, 1, 6000, 33, 1, id="windows of one element"),
        pytest.param((25, 20), 3, 2, 1280, 64, 2, id="groups"),
    ],
)
@pytest.mark.one_in(4)
def test_a_launch_sums_the_inputs_that_the_cache_holds(
    native: NativeRunner, isa: str, size: tuple[int, int], kernel: int, apart: int, inputs: int, outputs: int, groups: int,
    chain: str,
) -> None:  # fmt: skip
    src, dst = (MemoryDesc((1, channels, *size), "f32", "aBcd16b") for channels in (inputs, outputs))
    weights, bias = MemoryDesc((outputs, inputs // groups, kernel, kernel), "f32", "any"), MemoryDesc((outputs,), "f32")
    pads = (apart * (kernel // 2),) * 2
    op = Convolution(src, weights, bias, dst, (1, 1), (apart - 1,) * 2, pads, pads, groups)
    known = {"add": PostOp("binary", "add", src1=dst), "relu": PostOp("eltwise", "relu")}
    steps = tuple(known[name] for name in chain.split())
    places = {int(Arg.SRC): src.dims, int(Arg.WEIGHTS): weights.dims, int(Arg.BIAS): bias.dims}
    places |= {post_op_src(at): dst.dims for at, step in enumerate(steps) if step.src1}
    pd = primitive_desc(op, PrimitiveAttr(steps), target_of(isa))
    launches = len(pd.program().launches)
    assert pd.impl_name() == "native:blocked"
    # An addition behind a bound needs complete sums; AVX2 sums chunks of inputs in one launch, unless taps are left out.
    assert (launches > 2) == (chain != "relu add" and (isa != "x86-64-v3" or apart == 6))
    args = {arg: integers(dims, arg) for arg, dims in places.items()}
    native.check(Case("chunks", pd.op, args, PrimitiveAttr(steps), rtol=0), isa)


@pytest.mark.parametrize(("inputs", "groups", "size"), [(2, 9, (7, 5)), (4, 8, (3, 4, 20)), (8, 3, (19,))])
def test_groups_that_share_blocks_of_channels(
    native: NativeRunner, isa: str, inputs: int, groups: int, size: tuple[int, ...]
) -> None:
    channels, step = inputs * groups, int(np.random.default_rng().integers(1, 3))

    def md(*dims: int) -> MemoryDesc:
        return MemoryDesc(dims, "f32", "any")

    out, ones, kernel = tuple((each - 1) // step + 1 for each in size), (1,) * len(size), (3,) * len(size)
    op = Convolution(
        md(2, channels, *size), md(channels, inputs, *kernel), md(channels), md(2, channels, *out), (step,) * len(size),
        (0,) * len(size), ones, ones, groups,
    )  # fmt: skip
    args = {
        int(arg): integers(dims, arg)
        for arg, dims in ((Arg.SRC, op.src.dims), (Arg.WEIGHTS, op.weights.dims), (Arg.BIAS, (channels,)))
    }
    for variant in completed(Case("shared blocks", op, args, rtol=0), isa):
        native.check(variant, isa)


def test_a_tile_takes_no_step_of_a_tap_in_padding() -> None:
    """Of 33 columns in tiles of 11, two in three read padding with one of three taps that are 12 apart; rows do, too."""
    walks = Walks([(0, 16, 0)] * 9, 64)
    plane = MemoryDesc((1, 16, 33, 33), "f32")
    op = Convolution(
        plane, MemoryDesc((16, 16, 3, 3), "f32"), None, plane, (1, 1), (11, 11), (12, 12), (12, 12), 1
    )  # fmt: skip
    tiles, taps = tiling("x86-64-v4", 33, 33, 1), taps_of(Window.of(op))
    places = [walks.place(taps(corners(tiles, 0, *place)), 9) for place in tiles.places]
    taken = [walks.walks[place // 8 + 1] for place in places]
    assert sum(taken) == (2 + 3 + 2) * (12 * 2 + 9 * 3 + 12 * 2)
    assert len(walks.walks) == 3 * 9


@pytest.mark.parametrize(
    ("width", "apart", "line"),
    [
        pytest.param(28, 1, (), id="dense"),
        pytest.param(28, 12, (12, 4, 12), id="all three taps in the middle"),
        pytest.param(28, 24, (4, 10, 10, 4), id="one tap in the middle"),
        pytest.param(33, 12, (), id="tiles that are even nearly end there"),
        pytest.param(28, 36, (), id="one tap everywhere"),
        pytest.param(7, 2, (), id="several rows a tile"),
    ],
)
def test_tiles_of_a_row_end_where_other_taps_are_needed(width: int, apart: int, line: tuple[int, ...]) -> None:
    plane, weights = MemoryDesc((1, 16, width, width), "f32"), MemoryDesc((16, 16, 3, 3), "f32")
    pads = (apart, apart)
    window = Window.of(Convolution(plane, weights, None, plane, (1, 1), (apart - 1,) * 2, pads, pads, 1))
    assert line_of(window, "x86-64-v4") == line
    if line:
        tiles = tiling("x86-64-v4", width, width, 2, line=line)
        assert sum(tiles.kinds[kind][0] for kind, _, _ in tiles.places) == width * width


@pytest.mark.parametrize(
    ("apart", "spare", "is_direct"),
    [
        pytest.param(1, ((1, 1), (0, 0)), False, id="dense"),
        pytest.param(24, ((24, 24), (22, 21)), False, id="a dilation of most of a plane"),
        pytest.param(36, ((36, 36), (36, 36)), True, id="a dilation beyond the plane"),
    ],
)
def test_a_padded_copy_has_only_what_tiles_read(
    apart: int, spare: tuple[tuple[int, int], tuple[int, int]], is_direct: bool
) -> None:
    """Of 32 columns in tiles of 11, 11 and 10, with 3 x 3 taps, as in DeepLab."""
    plane, weights = MemoryDesc((1, 16, 32, 32), "f32"), MemoryDesc((16, 16, 3, 3), "f32")
    pads = (apart, apart)
    window = Window.of(Convolution(plane, weights, None, plane, (1, 1), (apart - 1,) * 2, pads, pads, 1))
    assert spare_of(window, tiling("x86-64-v4", 32, 32, 1)) == spare
    assert dataclasses.replace(window, spare=spare).is_direct == is_direct
