"""Native kernels on shapes drawn at random: the kernels are few, so hundreds of shapes cost no compilation."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from poolrt.workers.desc import (
    Arg,
    BatchNormalization,
    Binary,
    Concat,
    Eltwise,
    Lrn,
    MemoryDesc,
    Pooling,
    Softmax,
    Sum,
    multiple_src,
)
from poolrt.workers.engines.target import host_isa
from poolrt.workers.primitives.blocks import blocked_tag
from tests.workers.cases import Array, Case, integers, normals
from tests.workers.native_runner import NativeRunner

SHARED = [HealthCheck.function_scoped_fixture]
CHANNELS = st.sampled_from((1, 2, 15, 16, 17, 31, 32, 40))


@st.composite
def images(draw: st.DrawFn) -> MemoryDesc:
    """Draw an activation of rank 3 to 5, row-major or in blocks of 16 channels."""
    spatial = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    dims = (draw(st.integers(1, 3)), draw(CHANNELS), *spatial)
    return MemoryDesc(dims, "f32", draw(st.sampled_from(("", blocked_tag(len(dims))))))


def like(md: MemoryDesc, dims: tuple[int, ...]) -> MemoryDesc:
    return MemoryDesc(dims, "f32", md.tag)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=SHARED)
@given(data=st.data())
def test_pooling(native: NativeRunner, data: st.DataObject) -> None:
    src = data.draw(images())
    spatial = src.dims[2:]
    draw = [(data.draw(st.integers(1, 4)), *(data.draw(st.integers(0, 2)) for _ in range(3))) for _ in spatial]
    kernel = tuple(d[0] for d in draw)
    dilations, left, right = (tuple(d[i] for d in draw) for i in (1, 2, 3))
    strides = tuple(data.draw(st.integers(1, 3)) for _ in spatial)
    reach = [(k - 1) * (d + 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    padded = [s + a + b for s, a, b in zip(spatial, left, right, strict=True)]
    assume(all(p >= r for p, r in zip(padded, reach, strict=True)))
    out = tuple((p - r) // s + 1 for p, r, s in zip(padded, reach, strides, strict=True))
    algorithm = data.draw(st.sampled_from(("max", "avg_include_padding", "avg_exclude_padding")))
    op = Pooling(src, like(src, (*src.dims[:2], *out)), algorithm, kernel, strides, dilations, left, right)
    native.check(Case(str(op), op, {Arg.SRC: integers(src.dims, low=-90, high=90)}), host_isa())


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=SHARED)
@given(data=st.data())
def test_binary(native: NativeRunner, data: st.DataObject) -> None:
    dst = data.draw(images())
    keep = st.sampled_from((True, True, False))
    first, second = (tuple(d if data.draw(keep) else 1 for d in dst.dims) for _ in range(2))
    out = tuple(max(a, b) for a, b in zip(first, second, strict=True))
    op = Binary(like(dst, first), like(dst, second), like(dst, out), "sub")
    native.check(Case(str(op), op, {Arg.SRC: integers(first), Arg.SRC_1: integers(second, "b")}), host_isa())


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=SHARED)
@given(data=st.data())
def test_softmax(native: NativeRunner, data: st.DataObject) -> None:
    md = data.draw(images())
    axis = data.draw(st.integers(0 if md.is_plain else 1, md.ndims - 1))
    op = Softmax(md, md, axis)
    native.check(Case(str(op), op, {Arg.SRC: normals(md.dims, scale=3.0)}, rtol=3e-6), host_isa())


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=SHARED)
@given(data=st.data())
def test_concat(native: NativeRunner, data: st.DataObject) -> None:
    first = data.draw(images())
    axis = data.draw(st.integers(0, first.ndims - 1))
    sizes = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=9))
    if axis == 1 and not first.is_plain:
        sizes = [16 * (s // 5) for s in sizes[:-1]] + sizes[-1:]
    assume(sum(sizes) > 0)
    srcs = tuple(like(first, (*first.dims[:axis], s, *first.dims[axis + 1 :])) for s in sizes)
    op = Concat(srcs, like(first, (*first.dims[:axis], sum(sizes), *first.dims[axis + 1 :])), axis)
    args = {multiple_src(i): normals(s.dims, i) for i, s in enumerate(srcs)}
    native.check(Case(str(op), op, args, rtol=0.0, atol=0.0), host_isa())


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=SHARED)
@given(md=images(), count=st.integers(1, 9))
def test_sum_and_eltwise(native: NativeRunner, md: MemoryDesc, count: int) -> None:
    args = {multiple_src(i): integers(md.dims, i) for i in range(count)}
    native.check(Case(f"sum of {count} {md}", Sum((md,) * count, md), args), host_isa())
    native.check(Case(f"exp {md}", Eltwise(md, md, "exp"), {Arg.SRC: normals(md.dims)}, rtol=4e-7), host_isa())


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=SHARED)
@given(md=images(), size=st.sampled_from((1, 4, 5, 32)))
def test_normalizations(native: NativeRunner, md: MemoryDesc, size: int) -> None:
    lrn = Lrn(md, md, size, 0.5, 0.75, 1.0)
    native.check(Case(str(lrn), lrn, {Arg.SRC: normals(md.dims)}, rtol=4e-6), host_isa())
    op = BatchNormalization(md, md, 1e-3)
    args: dict[int, Array] = {Arg.SRC: integers(md.dims)}
    for arg in (Arg.MEAN, Arg.VARIANCE, Arg.SCALE, Arg.SHIFT):
        args[arg] = integers((md.dims[1],), arg, low=1)
    native.check(Case(str(op), op, args, rtol=1e-6, atol=1e-5), host_isa())


@pytest.mark.parametrize("length", [1, 15, 16, 17, 4095, 4096, 4097, 8193])
def test_runs_of_any_length_are_cut_into_pieces(native: NativeRunner, isa: str, length: int) -> None:
    md = MemoryDesc((length,), "f32")
    native.check(Case(f"{length}", Eltwise(md, md, "linear", 2.0, 1.0), {Arg.SRC: integers(md.dims)}), isa)
