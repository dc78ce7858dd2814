"""Products by weights of a few bits: packed weights, few and many rows, odd sizes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, MatmulNbits, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, UnsupportedPrimitive, primitive_desc
from poolrt.workers.implementations.program import Launch
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from poolrt.workers.kernels.spec import KernelSpec
from tests.references.matmul_nbits import matmul_nbits
from tests.workers.kernels.native.test_conv import loops_with_multiplications
from tests.workers.levels import of_level, target_of
from tests.workers.native_runner import NativeRunner

Array = NDArray[Any]


def describe(
    rows: int, depth: int, columns: int, block: int, bits: int, points: str = "", bias: bool = False, tag: str = "any"
) -> MatmulNbits:
    """Return a descriptor; ``points`` is the data type of zero points, nothing for none."""
    blocks = -(-depth // block)
    weights = MemoryDesc((columns, blocks, block * bits // 8), "u8", tag)
    sizes = (columns, -(-blocks * bits // 8) if points == "u8" else blocks)
    return MatmulNbits(
        MemoryDesc((rows, depth), "f32"), weights, MemoryDesc((columns, blocks), "f32", tag),
        MemoryDesc(sizes, points, tag) if points else None, MemoryDesc((columns,), "f32") if bias else None,
        MemoryDesc((rows, columns), "f32"), bits,
    )  # fmt: skip


def draw(op: MatmulNbits, seed: int) -> dict[int, Array]:
    """Return random arguments."""
    rng = np.random.default_rng(seed)
    args: dict[int, Array] = {}
    for arg, md in op.memories().items():
        if md.dtype == "u8":
            args[arg] = rng.integers(0, 256, md.dims).astype(np.uint8)
        elif arg == Arg.SCALE:
            args[arg] = rng.uniform(0.01, 0.02, md.dims).astype(np.float32)
        elif arg != Arg.DST:
            args[arg] = (rng.standard_normal(md.dims) + (8.0 if arg == Arg.SHIFT else 0.0)).astype(np.float32)
    return args


def exact(op: MatmulNbits, args: dict[int, Array]) -> Array:
    """Return the product in float64."""
    names = (Arg.SRC, Arg.WEIGHTS, Arg.SCALE, Arg.SHIFT, Arg.BIAS)
    return matmul_nbits(op, *(None if args.get(n) is None else args[n].astype(np.float64) for n in names))  # type: ignore[arg-type]


def check(native: NativeRunner, op: MatmulNbits, seed: int) -> None:
    """Compare what the host's target and the level below its extensions compute."""
    here = cpu_target()
    for target in dict.fromkeys((here, here.only(()))):
        pd = primitive_desc(op, PrimitiveAttr(), target)
        assert pd.impl_name().startswith("native:matmul_nbits")
        args = draw(op, seed)
        want = exact(op, args)
        got = native.results(pd, args)[Arg.DST]
        np.testing.assert_allclose(got, want, rtol=0, atol=4e-6 * np.abs(want).max(initial=1.0), err_msg=str(op))


#: How bytes are multiplied -> the target that has the instructions.
PLANES = {"vnni": "x86-64-v4+avx512_vnni", "bytes": "x86-64-v3"}


def by_planes(op: MatmulNbits, how: str) -> PrimitiveDesc:
    pd = primitive_desc(op, PrimitiveAttr(), target_of(PLANES[how]))
    assert pd.impl_name() == f"native:matmul_nbits_{how}"
    return pd


@pytest.mark.slow
def test_one_row_and_many_are_multiplied(native: NativeRunner) -> None:
    check(native, describe(1, 128, 40, 32, 4, "u8"), 1)
    check(native, describe(19, 75, 23, 32, 4), 2)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("points", ["", "u8", "f32"])
def test_every_number_of_rows_is_multiplied(native: NativeRunner, bits: int, points: str) -> None:
    for rows in (1, 2, 3, 5, 8, 13, 16, 17, 40, 128):
        check(native, describe(rows, 96, 50, 32, bits, points, bias=rows % 2 == 0), rows)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [4, 8])
def test_odd_sizes_and_blocks_are_multiplied(native: NativeRunner, bits: int) -> None:
    for rows in (1, 6, 33):
        for depth, columns, block in ((1, 1, 16), (33, 17, 16), (257, 31, 64), (300, 64, 128), (4099, 48, 32)):
            check(native, describe(rows, depth, columns, block, bits, "u8", bias=True), depth)
            check(native, describe(rows, depth, columns, block, bits, tag=""), depth)


@pytest.mark.slow
def test_columns_of_several_strips_are_multiplied(native: NativeRunner) -> None:
    check(native, describe(30, 4096, 200, 32, 4, "f32", bias=True), 3)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 129, 4097, 7226])
def test_no_strip_of_rows_has_fewer_than_a_tile(rows: int) -> None:
    """A strip that large inputs allow has 64 rows: 4097 of them would leave one for the last."""
    program = by_planes(describe(rows, 5504, 16, 32, 4), "vnni").program()
    launched = [(dict(program.kernels[run.kernel].params), run) for run in program.launches if isinstance(run, Launch)]
    strips = [(params["rows"], run.args[8][1]) for params, run in launched if params.get("part") == "rows"]
    assert sum(count for _, count in strips) == rows  # type: ignore[misc]
    assert all(tile <= count <= 64 for tile, count in strips)  # type: ignore[operator]


@pytest.mark.parametrize("rows", [2, 3, 4])
@pytest.mark.parametrize("bits", [4, 8])
def test_few_rows_are_one_tile_on_avx2(rows: int, bits: int, native: NativeRunner) -> None:
    op = describe(rows, 200, 40, 32, bits, "u8", bias=True)
    program = primitive_desc(op, PrimitiveAttr(), of_level("x86-64-v3")).program()
    assert [dict(spec.params)["rows"] for spec in program.kernels if dict(spec.params).get("part") == "rows"] == [rows]
    check(native, op, rows)


@pytest.mark.parametrize(
    ("how", "bits", "block"),
    [
        *(("vnni", 4, block) for block in (16, 32, 4096)),
        *(("vnni", 8, block) for block in (48, 256)),
        *(("bytes", 4, block) for block in (16, 48, 4096)),
    ],
)
def test_whole_numbers_are_as_exact_as_float32(how: str, bits: int, block: int, native: NativeRunner) -> None:
    for rows, depth in ((1, 2 * block + 5), (3, block - 1), (6, block))[: 3 if how == "vnni" else 1]:
        op = describe(rows, depth, 21, block, bits, ("", "u8", "f32")[rows % 3], bias=rows == 3)
        pd, args = by_planes(op, how), draw(op, rows)
        if rows == 1:
            # The lowest two bytes of elements are -128, and weights are the largest: no sum may exceed 32 bits.
            args[Arg.WEIGHTS][:] = 255
            args[Arg.SRC][:] = 0x7E7F80 / 2**23
        want = exact(op, args)
        products = np.abs(args[Arg.SRC]) @ np.full((depth, 1), float(1 << bits)) * 0.02
        error = np.abs(native.results(pd, args)[Arg.DST] - want)
        assert (error <= 2.0**-22 * (products + np.abs(want))).all(), (op, error.max())


@pytest.mark.parametrize("bits", [4, 8])
def test_blocks_of_whole_numbers_may_be_tiny_huge_zero_or_no_numbers(bits: int, native: NativeRunner) -> None:
    op = describe(4, 96, 20, 32, bits, "u8")
    pd, args = by_planes(op, "vnni"), draw(op, 5)
    src = args[Arg.SRC]
    src[0, :32], src[0, 32:64], src[1], src[2, 40], src[3, 70] = 1e-33, 1e30 * src[0, 32:64], 0.0, np.nan, np.inf
    want = exact(op, args)
    got = native.results(pd, args)[Arg.DST]
    np.testing.assert_allclose(got[:2], want[:2], rtol=0, atol=4e-6 * np.abs(want[0]).max())
    assert (got[1] == 0.0).all()
    assert np.isnan(got[2]).all()
    assert not np.isfinite(got[3]).any()


def test_rows_and_blocks_that_whole_numbers_do_not_take_are_multiplied_as_floats() -> None:
    cases = {
        "vnni": (describe(1, 64, 20, 24, 4), describe(1, 600, 20, 512, 8)),
        "bytes": (describe(2, 64, 20, 32, 4), describe(1, 64, 20, 24, 4), describe(1, 64, 20, 32, 8)),
    }
    for how, ops in cases.items():
        for op in ops:
            assert primitive_desc(op, PrimitiveAttr(), target_of(PLANES[how])).impl_name() == "native:matmul_nbits"


def test_many_rows_become_whole_numbers_some_after_the_others(native: NativeRunner) -> None:
    for rows, depth, strips in ((64, 4096, 1), (65, 8192, 2), (130, 4096, 2), (257, 64, 1)):
        op = describe(rows, depth, 18, 32, 4, bias=True)
        pd, args = by_planes(op, "vnni"), draw(op, rows)
        assert len(pd.program().launches) == 2 * strips
        want = exact(op, args)
        np.testing.assert_allclose(native.results(pd, args)[Arg.DST], want, rtol=0, atol=4e-6 * np.abs(want).max())


def test_rows_are_shared_out_evenly_to_tiles() -> None:
    for rows, tile in ((1, 1), (3, 3), (4, 4), (5, 3), (9, 3), (16, 4)):
        program = by_planes(describe(rows, 64, 20, 32, 4), "vnni").program()
        assert [dict(spec.params)["rows"] for spec in program.kernels if dict(spec.params).get("part") == "rows"] == [
            tile
        ]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("rows", [2, 3, 4])
@pytest.mark.parametrize("bits", [4, 8])
def test_sums_of_few_rows_stay_in_registers_of_avx2(rows: int, bits: int, tmp_path: Path) -> None:
    """Sums on the stack took twice the time."""
    spec = KernelSpec.of("matmul_nbits", part="rows", rows=rows, bits=bits, points="")
    for body in loops_with_multiplications(compile_kernel(spec, "x86-64-v3"), tmp_path):
        assert not [line for line in body if "mm" in line and "(%rsp" in line]


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    op = describe(2, 64, 8, 32, 4)
    with pytest.raises(UnsupportedPrimitive, match="blocks of 2 bytes"):
        short = MatmulNbits(op.src, MemoryDesc((8, 16, 2), "u8"), MemoryDesc((8, 16), "f32"), None, None, op.dst)
        primitive_desc(short, PrimitiveAttr(), cpu_target(), references=False)
    with pytest.raises(ValueError, match="expect 2 blocks of 32 inputs, got 3"):
        MatmulNbits(op.src, MemoryDesc((8, 3, 16), "u8"), MemoryDesc((8, 3), "f32"), None, None, op.dst)
    with pytest.raises(ValueError, match="bits: expect 4 or 8, got 5"):
        MatmulNbits(op.src, op.weights, op.scales, None, None, op.dst, 5)
