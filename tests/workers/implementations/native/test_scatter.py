"""Scatter on native kernels: every reduction, several updates of one place, any strides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from poolrt.cachestore.deferred_dataclass import replace
from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr, Scatter
from poolrt.workers.desc.operations.scatter import SCATTER_REDUCTIONS
from poolrt.workers.engines.target import cpu_target, host_isa
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references import numpy_type
from tests.references.scatter import scatter
from tests.workers.native_runner import NativeRunner

Sizes = tuple[int, ...]


def described(
    dims: Sizes,
    indices: Sizes,
    dtype: str,
    algorithm: str,
    reduction: str,
    axis: int = 0,
    tags: tuple[Any, ...] = ("",) * 4,
) -> Scatter:
    updates = indices if algorithm == "elements" else (*indices[:-1], *dims[indices[-1] :])
    src, dst, given = (
        MemoryDesc(dims, dtype, tags[0]),
        MemoryDesc(dims, dtype, tags[1]),
        MemoryDesc(updates, dtype, tags[2]),
    )
    return Scatter(src, MemoryDesc(indices, "s64", tags[3]), given, dst, algorithm, axis, reduction)


def check(native: NativeRunner, op: Scatter, name: str = "native:scatter") -> None:
    """Few numbers, whose sums and products are exact; some indices are out of range, many the same."""
    pd = primitive_desc(op, PrimitiveAttr(), cpu_target(host_isa()))
    assert pd.impl_name() == name
    rng, kind = np.random.default_rng(), numpy_type(op.src.dtype)
    highest = 2 if op.src.dtype == "bool" else 3
    src, updates = (rng.integers(0, highest, md.dims).astype(kind) for md in (op.src, op.updates))
    if op.reduction == "mul":
        updates = (rng.random(op.updates.dims) < 0.1).astype(kind) + np.ones((), kind)
    if kind.kind not in "biu" and op.reduction in ("min", "max"):
        src[rng.random(src.shape) < 0.1] = np.nan
        updates[rng.random(updates.shape) < 0.1] = np.nan
    largest = op.src.dims[op.axis] if op.algorithm == "elements" else max(op.src.dims[: op.indices.dims[-1]], default=1)
    indices = rng.integers(-largest - 1, largest + 1, op.indices.dims)
    got = native.results(pd, {Arg.SRC: src, Arg.SRC_1: indices, Arg.SRC_2: updates})[Arg.DST]
    # bfloat16's minima and maxima of NaN warn.
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = scatter(op, src, indices, updates)
    assert got.dtype == wanted.dtype
    if op.src.dtype == "bf16":
        # NumPy does not know its NaN.
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_array_equal(got, wanted, str(op))


@pytest.mark.parametrize(
    "reduction", ["none", *(pytest.param(r, marks=pytest.mark.slow) for r in SCATTER_REDUCTIONS[1:])]
)
def test_updates_are_made_in_the_order_of_their_indices(native: NativeRunner, reduction: str) -> None:
    types = ("u8", "f32") if reduction == "none" else ("f32", "f64", "s64", "s32", "s8", "u8")
    for dtype in types:
        check(native, described((5, 9, 7), (5, 30, 3), dtype, "elements", reduction, 1))
        check(native, described((5, 9, 7), (30, 1), dtype, "nd", reduction))
        check(native, described((5, 4, 7), (3, 20, 2), dtype, "nd", reduction))
        check(native, described((5, 4), (40, 2), dtype, "nd", reduction))


@pytest.mark.parametrize("reduction", SCATTER_REDUCTIONS)
def test_single_elements_have_kernels_for_up_to_four_indices(native: NativeRunner, reduction: str) -> None:
    problems = (
        ((9,), (40, 1)),
        ((5, 4), (8, 3, 2)),
        ((2, 3, 4), (30, 3)),
        ((2, 3, 2, 3), (4, 9, 4)),
        ((2,) * 5, (20, 5)),
    )
    for dims, indices in problems:
        for dtype in ("f32", "s64", "u8"):
            apart = tuple(2 * math.prod(indices[axis + 1 :]) for axis in range(len(indices)))
            op = described(dims, indices, dtype, "nd", reduction, tags=("", "", "", apart))
            check(native, op)
            check(native, described(dims, indices, dtype, "nd", reduction))
            spec = primitive_desc(op, PrimitiveAttr(), cpu_target(host_isa())).program().kernels[1]
            assert dict(spec.params)["axes"] == (len(dims) if len(dims) <= 4 else 0)


@pytest.mark.parametrize("dtype", ["f32", "f64", "s16", "u8"])
def test_one_number_is_updated_in_many_places(native: NativeRunner, dtype: str) -> None:
    for dims, indices, algorithm in (
        ((1000,), (333,), "elements"),
        ((7, 9), (7, 30), "elements"),
        ((40, 30), (50, 1), "nd"),
    ):
        op = described(dims, indices, dtype, algorithm, "none", len(dims) - 1 if algorithm == "elements" else 0)
        op = replace(op, src=MemoryDesc(dims, dtype, (0,) * len(dims)))
        pd = primitive_desc(op, PrimitiveAttr(), cpu_target(host_isa()))
        assert "reorder" in [spec.generator for spec in pd.program().kernels]
        rng, kind = np.random.default_rng(), numpy_type(dtype)
        src = np.broadcast_to(np.array(3, kind), dims)
        updates = rng.integers(0, 9, op.updates.dims).astype(kind)
        chosen = rng.integers(-dims[op.axis], dims[op.axis], indices)
        got = native.results(pd, {Arg.SRC: src, Arg.SRC_1: chosen, Arg.SRC_2: updates})[Arg.DST]
        np.testing.assert_array_equal(got, scatter(op, src, chosen, updates), f"{op}")


def test_rows_are_added_whole_and_in_any_layout(native: NativeRunner) -> None:
    for tags in (("",) * 4, ("", "", "ba", ""), ("", "ba", "", "")):
        check(native, described((6, 37), (30, 1), "f32", "nd", "add", tags=tags))


@pytest.mark.parametrize("reduction", SCATTER_REDUCTIONS[1:])
@pytest.mark.one_in(2)
def test_floats_of_16_bits_are_combined_by_kernels_of_f32(native: NativeRunner, reduction: str) -> None:
    for dtype in ("f16", "bf16"):
        check(native, described((5, 9, 7), (5, 30, 3), dtype, "elements", reduction, 1), "nested:f32")
        check(native, described((6, 37), (30, 1), dtype, "nd", reduction, tags=("", "", "ba", "")), "nested:f32")


@pytest.mark.slow
def test_large_updates_and_any_strides(native: NativeRunner) -> None:
    for reduction in ("none", "add"):
        check(native, described((50, 20), (70000, 2), "s64", "nd", reduction))
        check(native, described((300, 300), (250, 1), "f32", "nd", reduction))
        tags = ((1000, 100, 7), "cab", (3000, 90, 3), "")
        check(native, described((4, 5, 6), (9, 1), "f32", "nd", reduction, tags=tags))
        check(native, described((4, 5, 6), (4, 9, 6), "f32", "elements", reduction, 1, (*tags[:3], "bca")))
    for dtype in ("f16", "bf16", "bool", "s64"):
        check(native, described((5, 9), (5, 30), dtype, "elements", "none", 1))


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    def refused(op: Scatter, why: str) -> None:
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, PrimitiveAttr(), cpu_target(), references=False)

    refused(described((2, 32, 3), (2, 1), "f32", "nd", "none", tags=("aBc16b", "", "", "")), "blocks")
    refused(described((2, 32, 3), (2, 1), "bool", "nd", "add"), "reduction add of bool")
