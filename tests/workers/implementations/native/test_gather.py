"""Gather on native kernels: rows of any length, elements of any size, any strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, Gather, MemoryDesc, PostOp, PrimitiveAttr, Reorder
from poolrt.workers.desc.operations.gather import gathered_dims
from poolrt.workers.engines import object_loader
from poolrt.workers.engines.target import cpu_target, host_isa
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references import numpy_type
from tests.workers.cases import Case, normals
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

Array = NDArray[Any]
Sizes = tuple[int, ...]


def described(
    src: MemoryDesc,
    indices: Sizes,
    algorithm: str = "rows",
    axis: int = 0,
    batch: int = 0,
    kind: str = "s64",
    tag: Any = "",
) -> Gather:
    """Return a descriptor whose dst has a layout."""
    chosen = MemoryDesc(indices, kind)
    dst = MemoryDesc(gathered_dims(src, chosen, algorithm, axis, batch), src.dtype, tag)
    return Gather(src, chosen, dst, algorithm, axis, batch)


def drawn(op: Gather) -> dict[int, Array]:
    """Return any bits, and indices of which a few are out of range."""
    rng = np.random.default_rng()
    dtype = numpy_type(op.src.dtype)
    if op.src.dtype == "bool":
        src = rng.integers(0, 2, op.src.dims).astype(dtype)
    else:
        src = np.frombuffer(rng.bytes(op.src.elements * dtype.itemsize), dtype).reshape(op.src.dims)
    first = op.batch_dims if op.algorithm == "nd" else op.axis
    sizes = op.src.dims[first : first + op.indices.dims[-1]] if op.algorithm == "nd" else op.src.dims[first : first + 1]
    limits = np.array(sizes, np.int64)
    indices = np.asarray(rng.integers(-limits, limits, op.indices.dims))
    most = max(sizes, default=0)
    wild = rng.choice([-(2**31), -most - 1, most, 2**31 - 1], indices.shape)
    indices = np.where(rng.random(indices.shape) < 0.1, wild, indices)
    return {Arg.SRC: src, Arg.SRC_1: indices.astype(numpy_type(op.indices.dtype))}


def expected(op: Gather, args: dict[int, Array]) -> Array:
    """Return the bits that indices choose, one after another."""
    src, indices = args[Arg.SRC], args[Arg.SRC_1]
    found = np.zeros(op.dst.dims, src.dtype)
    for place in np.ndindex(op.dst.dims):
        if op.algorithm == "rows":
            after = op.axis + indices.ndim
            at = [*place[: op.axis], int(indices[place[op.axis : after]]), *place[after:]]
        elif op.algorithm == "elements":
            at = [int(indices[place]) if dim == op.axis else index for dim, index in enumerate(place)]
        else:
            outer = place[: indices.ndim - 1]
            at = [*place[: op.batch_dims], *map(int, indices[outer]), *place[indices.ndim - 1 :]]
        if all(-size <= index < size for index, size in zip(at, src.shape, strict=True)):
            found[place] = src[tuple(at)]
    return found


def check(native: NativeRunner, op: Gather, isa: str = "") -> None:
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa or host_isa()))
    assert pd.impl_name() == "native:gather"
    args = drawn(op)
    got = native.results(pd, args)[Arg.DST]
    assert got.tobytes() == expected(op, args).tobytes(), str(op)


@pytest.mark.parametrize(
    "length", [13, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3, 16, 70, 601, 9000))]
)
def test_rows_of_any_length_and_data_type(native: NativeRunner, isa: str, length: int) -> None:
    for number, dtype in enumerate(("u8", "bf16", "f32", "f64", "bool", "f16", "s64", "s32", "s8")):
        src = MemoryDesc((7, length), dtype)
        check(native, described(src, (3, 2), kind=("s64", "s32")[number % 2]), isa)


@pytest.mark.parametrize("least", [1 << 13, 2**63 - 1])
def test_long_rows_are_copied_by_one_instruction_or_by_vectors_and_in_pieces(
    native: NativeRunner, isa: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Loaded kernels read it at each call
    number = object_loader.long_moves_of_this_process()
    monkeypatch.setattr(number, "value", least)
    rng = np.random.default_rng()
    for bound in (1 << 13, 1 << 14, 1 << 16):
        length = bound + int(rng.integers(-1, 70))
        check(native, described(MemoryDesc((3, length), "u8"), (4,)), isa)
    apart = MemoryDesc((3, 5, 9000), "f32", strides=(50_000, 9003, 1))
    op = Reorder(apart, MemoryDesc(apart.dims, "f32"))
    native.check(Case(str(op), op, {Arg.SRC: normals(apart.dims)}, rtol=0.0, atol=0.0), isa)
    if isa == host_isa():
        check(native, described(MemoryDesc((2, 40_001), "f64"), (30,)))


def test_elements_and_several_indices(native: NativeRunner) -> None:
    src = MemoryDesc((5, 6, 9), "f32")
    check(native, described(src, (4, 6, 9), "elements", 0, kind="s32"))
    check(native, described(src, (4, 5, 11), "elements", 2, kind="s32"))
    check(native, described(src, (5, 3, 2), "nd", 0, 1))
    check(native, described(src, (40, 3), "nd"))
    check(native, described(src, (2, 2, 1), "nd"))
    check(native, described(src, (3, 0), "nd"))
    check(native, described(src, (5, 6, 1), "nd", 0, 2))


def test_few_indices_behind_many_places(native: NativeRunner) -> None:
    """Items are steps of the longest loop then, whose elements are apart in src and dst."""
    rng = np.random.default_rng()
    for few in (1, 3, 7, 8):
        outer, deep = (int(size) for size in rng.integers(9, 90, 2))
        check(native, described(MemoryDesc((outer, deep), "f32"), (few,), axis=1))
        check(native, described(MemoryDesc((outer, 2, deep, 3), "u8"), (few,), axis=2))
        check(native, described(MemoryDesc((outer, 5, deep), "f64"), (few, 1), axis=2, tag="cabd"))
        check(native, described(MemoryDesc((outer, deep), "f16"), (outer, few), "elements", 1))
        check(native, described(MemoryDesc((outer, 6, deep), "s32"), (outer, few, 1), "nd", 0, 1))


@pytest.mark.parametrize(("tag", "axis"), [("bca", 0), ("cab", 0), ("acb", 1), ("bac", 1)])
def test_rows_whose_elements_are_apart_are_copied_first(native: NativeRunner, tag: str, axis: int) -> None:
    for count in (2, 60):
        op = described(MemoryDesc((11, 6, 5), "f32", tag), (count,), axis=axis)
        check(native, op)


@pytest.mark.slow
def test_axes_and_layouts_of_any_strides(native: NativeRunner) -> None:
    for dtype in ("f16", "f32", "s64"):
        for axis in range(3):
            src = MemoryDesc((4, 5, 6), dtype, strides=(1000, 100, 7))
            check(native, described(src, (3, 2), axis=axis))
            check(native, described(src, (3,), axis=axis, tag=(200, 17, 2)))
            check(native, described(MemoryDesc((4, 5, 6), dtype, "cab"), (3,), axis=axis, tag="bca"))
            check(native, described(src, (4, 5, 6), "elements", axis, tag="bac"))
    check(native, described(MemoryDesc((4000, 300), "f32"), (200,)))
    check(native, described(MemoryDesc((3, 50000), "f32"), (700,), axis=1, kind="s32"))


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    def refused(op: Gather, why: str, attr: PrimitiveAttr | None = None) -> None:
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, attr or PrimitiveAttr(), cpu_target(), references=False)

    src = MemoryDesc((2, 32, 3), "f32", "aBc16b")
    refused(described(src, (2,)), "blocks")
    plain = MemoryDesc((2, 32), "f32")
    refused(described(plain, (2,)), "post-ops", PrimitiveAttr((PostOp("eltwise", "relu"),)))
    refused(Gather(plain, MemoryDesc((2,), "s32"), MemoryDesc((2, 32), "s8")), "conversion")
