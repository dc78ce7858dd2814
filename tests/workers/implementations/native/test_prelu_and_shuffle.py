"""Prelu and shuffle on native kernels."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import Arg, MemoryDesc, PostOp, Prelu, PrimitiveAttr, Shuffle
from poolrt.workers.engines.target import cpu_target, host_isa
from poolrt.workers.implementations.native.blocks import blocked_tag
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.workers.cases import Case, integers, normals
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

BLOCKED = "aBcd16b"


@pytest.mark.parametrize("tag", ["", *(pytest.param(tag, marks=pytest.mark.slow) for tag in ("acdb", BLOCKED))])
def test_slopes_broadcast_along_any_dimension(native: NativeRunner, isa: str, tag: str) -> None:
    md = MemoryDesc((2, 19, 3, 5), "f32", tag)
    src = normals(md.dims)
    src[0, 0, 0] = [np.nan, -np.inf, np.inf, -0.0, 0.0]
    for dims in ((1, 19, 1, 1), (1, 1, 1, 1), md.dims):
        slopes = MemoryDesc(dims, "f32", tag)
        args = {int(Arg.SRC): src, int(Arg.WEIGHTS): integers(dims)}
        pd = primitive_desc(Prelu(md, slopes, md), PrimitiveAttr(), target_of(isa))
        assert pd.impl_name() == "native:prelu"
        native.check(Case(f"{dims}", pd.op, args), isa)


@pytest.mark.slow
def test_a_row_major_slope_of_each_channel_needs_no_reorder(native: NativeRunner) -> None:
    md = MemoryDesc((2, 19, 3, 5), "f32", BLOCKED)
    op = Prelu(md, MemoryDesc((1, 19, 1, 1), "f32"), md)
    steps = PrimitiveAttr((PostOp("eltwise", "linear", 2.0, 1.0),))
    args = {int(Arg.SRC): normals(md.dims), int(Arg.WEIGHTS): integers((1, 19, 1, 1))}
    native.check(Case("", op, args, steps), host_isa())


@pytest.mark.parametrize("tag", ["", "acdb", "dcba"])
def test_groups_of_any_axis_are_interleaved(native: NativeRunner, tag: str) -> None:
    md = MemoryDesc((4, 18, 5, 12), "f32", tag)
    for axis, group in ((1, 3), (1, 1), (3, 4), (0, 2)):
        pd = primitive_desc(Shuffle(md, md, axis, group), PrimitiveAttr(), cpu_target())
        assert pd.impl_name() == "native:nest"
        native.check(Case("", pd.op, {int(Arg.SRC): normals(md.dims)}), host_isa())


@pytest.mark.parametrize(
    ("dims", "group"),
    [((2, 34, 5, 7), 17), ((1, 136, 1, 9), 34), ((3, 48, 2), 3), ((2, 21, 1, 1, 3), 7), ((1, 16, 6, 6), 4)],
)
def test_channels_in_blocks_are_interleaved_in_place(
    native: NativeRunner, isa: str, dims: tuple[int, ...], group: int
) -> None:
    md = MemoryDesc(dims, "f32", blocked_tag(len(dims)))
    pd = primitive_desc(Shuffle(md, md, 1, group), PrimitiveAttr(), target_of(isa))
    assert pd.impl_name() == "native:nest"
    native.check(Case("", pd.op, {int(Arg.SRC): normals(dims)}), isa)


def test_what_a_reorder_cannot_do_is_refused_with_the_reason() -> None:
    blocked, most = MemoryDesc((1, 32, 2, 2), "f32", BLOCKED), MemoryDesc((2,) * 12, "f32")
    for md, why in ((blocked, "may have blocks"), (most, "12 dimensions")):
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(Shuffle(md, md, 0, 1), PrimitiveAttr(), cpu_target(), references=False)
