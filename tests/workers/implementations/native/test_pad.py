"""Pad on native kernels: every mode, data types of every size, any strides."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import Arg, MemoryDesc, Pad, PrimitiveAttr
from poolrt.workers.desc.operations.pad import PAD_MODES, padded_dims
from poolrt.workers.engines.target import cpu_target, host_isa
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references import numpy_type
from tests.workers.native_runner import NativeRunner

Sizes = tuple[int, ...]


def check(
    native: NativeRunner,
    src: MemoryDesc,
    left: Sizes,
    right: Sizes,
    mode: str,
    value: float = 0.0,
    tag: str | Sizes = "",
) -> None:
    dst = MemoryDesc(padded_dims(src.dims, left, right, mode), src.dtype, tag)
    pd = primitive_desc(Pad(src, dst, left, right, mode, value), PrimitiveAttr(), cpu_target(host_isa()))
    assert pd.impl_name() == "native:pad"
    rng, kind = np.random.default_rng(), numpy_type(src.dtype)
    given = rng.integers(0, 2 if src.dtype == "bool" else 100, src.dims).astype(kind)
    want = np.asarray(given)
    for axis, (before, behind) in enumerate(zip(left, right, strict=True)):
        size = want.shape[axis]
        want = np.take(want, range(max(-before, 0), size + min(behind, 0)), axis)
        widths = [(0, 0)] * want.ndim
        widths[axis] = (max(before, 0), max(behind, 0))
        how = {"constant_values": value} if mode == "constant" else {}
        want = np.pad(want, widths, mode, **how)  # type: ignore[call-overload]
    got = native.results(pd, {Arg.SRC: given})[Arg.DST]
    np.testing.assert_array_equal(got, want, f"{src} {left} {right} {mode} {tag}")


def drawn(dims: Sizes) -> tuple[Sizes, Sizes]:
    """Return margins, some of them negative, that leave at least one element."""
    rng = np.random.default_rng()
    left = tuple(int(rng.integers(-(size - 1) // 2, 5)) for size in dims)
    return left, tuple(int(rng.integers(-(size - 1) // 2, 5)) for size in dims)


@pytest.mark.parametrize("mode", PAD_MODES)
def test_margins_of_every_mode_and_size_of_elements(native: NativeRunner, mode: str) -> None:
    for dtype, value in (("f32", -1.5), ("u8", 3.0), ("f16", 0.5), ("s64", -7.0), ("bf16", 2.0), ("bool", 1.0)):
        for dims in ((4, 5, 33), (70,), (3, 2, 3, 2), (2, 1)):
            check(native, MemoryDesc(dims, dtype), *drawn(dims), mode, value)
        check(native, MemoryDesc((3, 4, 50), dtype), (1, 2, 0), (2, 0, 0), mode, value)
        check(native, MemoryDesc((3, 20), dtype), (1, 9), (0, 8), mode, value)


@pytest.mark.parametrize("mode", PAD_MODES)
def test_wide_margins_and_rows_of_several_items(native: NativeRunner, mode: str) -> None:
    for dtype in ("f32", "s16", "s64"):
        for dims, left, right in (
            ((3, 20), (1, 9), (0, 17)),
            ((2, 9000), (0, 8000), (1, 3)),
            ((2, 3, 1), (0, 2, 12), (0, 0, 8)),
        ):
            check(native, MemoryDesc(dims, dtype), left, right, mode, 3.0)


@pytest.mark.parametrize("mode", PAD_MODES)
def test_narrow_margins_of_many_lines(native: NativeRunner, mode: str) -> None:
    rng = np.random.default_rng()
    for dtype, most in (("f32", 8), ("u8", 32), ("s16", 16), ("f64", 4)):
        for width in (2, 5, 9, 16, 33, 70):
            before, behind = (int(rng.integers(0, min(most + 1, width))) for _ in range(2))
            check(native, MemoryDesc((3, 9, width), dtype), (0, 2, before), (1, 1, behind), mode, 3.0)
            check(native, MemoryDesc((30, width), dtype), (-1, before), (-2, behind), mode, 3.0)


@pytest.mark.parametrize("mode", PAD_MODES)
def test_margins_of_any_strides(native: NativeRunner, mode: str) -> None:
    src = MemoryDesc((4, 5, 6), "f32", strides=(1000, 100, 7))
    check(native, src, (1, 0, 2), (0, 3, 1), mode, 1.0)
    check(native, src, (1, 0, 2), (0, 3, 1), mode, 1.0, "cab")
    check(native, MemoryDesc((4, 5, 6), "f32", "bca"), *drawn((4, 5, 6)), mode, 1.0, (2000, 150, 3))
    check(native, MemoryDesc((2, 9000), "f32"), (0, 5000), (1, 3000), mode, 1.0)


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    def refused(op: Pad, why: str) -> None:
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, PrimitiveAttr(), cpu_target(), references=False)

    src, dst = MemoryDesc((2, 32, 3), "s8"), MemoryDesc((2, 32, 4), "s8")
    refused(Pad(src.with_tag("aBc16b"), dst, (0, 0, 0), (0, 0, 1)), "blocks")
    refused(Pad(src, dst, (0, 0, 0), (0, 0, 1), "constant", 0.5), "a value of 0.5, which s8 does not hold")
    refused(Pad(src, MemoryDesc((2, 32, 4), "f32"), (0, 0, 0), (0, 0, 1)), "conversion")
