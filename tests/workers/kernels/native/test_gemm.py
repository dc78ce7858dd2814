"""The machine code of products: its hot loops keep every vector in registers."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from poolrt.workers.implementations.native.convolution_tiles import output_blocks, product_tiles, row_tiles
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from poolrt.workers.kernels.spec import KernelSpec

from .test_conv import loops_with_multiplications

#: Rows of dst -> kernels of tiles of 14 (6, 2) rows and fewer, of 10 (6, 2) and fewer, and of two and one.
ROWS = [196, 8, 1]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize(
    ("isa", "rows", "in_rows", "packs"),
    [
        pytest.param(isa, rows, in_rows, packs, marks=[] if (isa, rows) == ("x86-64-v4", 196) else pytest.mark.slow)
        for isa in ("x86-64-v2", "x86-64-v3", "x86-64-v4")
        for rows in ROWS
        for in_rows, packs in ((True, ""), (False, ""), (True, "rows"))
    ],
)
def test_no_vector_lives_on_the_stack_inside_of_a_loop(
    isa: str, rows: int, in_rows: bool, packs: str, tmp_path: Path
) -> None:
    heights, _ = product_tiles(isa, rows)
    spec = KernelSpec.of("gemm", heights=heights, blocks=output_blocks(isa, heights[0], 8), rows=in_rows, packs=packs)
    loops = loops_with_multiplications(compile_kernel(spec, isa), tmp_path)
    assert loops
    for body in loops:
        assert not [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize(
    ("heights", "blocks", "rest"),
    [
        pytest.param(heights, blocks, rest, marks=[] if blocks in (4, 7) else pytest.mark.slow)
        for heights, blocks, rest in (((6, 5, 4, 3), 4, 3), ((6, 5, 4, 3), 3, 2), ((2, 1), 7, 6), ((2, 1), 5, 3))
    ],
)
def test_no_vector_of_parts_of_any_width_lives_on_the_stack_inside_of_a_loop(
    heights: tuple[int, ...], blocks: int, rest: int, tmp_path: Path
) -> None:
    spec = KernelSpec.of("gemm", heights=heights, blocks=blocks, rest=rest, rows=True, packs="")
    loops = loops_with_multiplications(compile_kernel(spec, "x86-64-v4"), tmp_path)
    assert loops
    for body in loops:
        assert not [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("packs", ["", "rows"])
def test_tiles_of_avx_512_have_few_instructions_beside_their_multiplications(packs: str, tmp_path: Path) -> None:
    spec = KernelSpec.of("gemm", heights=(6, 5, 4, 3), blocks=4, rest=4, rows=True, packs=packs)
    bodies = loops_with_multiplications(compile_kernel(spec, "x86-64-v4"), tmp_path)
    found = {sum("vfmadd" in line for line in body): body for body in bodies}
    # Four inputs of six rows and four vectors: a load for each vector, one for each row, and what moves on to the next input.
    assert len(found[96]) <= 96 + 4 * (4 + 6) + 10
    assert not any("prefetch" in line for line in found[96])


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
def test_tiles_of_avx2_have_few_instructions_beside_their_multiplications(tmp_path: Path) -> None:
    spec = KernelSpec.of("gemm", heights=(6, 5, 4, 3), blocks=1, rows=True, packs="")
    found = []
    for body in loops_with_multiplications(compile_kernel(spec, "x86-64-v3"), tmp_path):
        products = sum("fmadd" in line for line in body)
        # A broadcast for two products, a load of the weights for each input and half of the columns, and addresses.
        inputs = sum("vmovups" in line for line in body) // 2
        assert len(body) <= products * 3 // 2 + 3 * inputs + 6, body
        found.append((products // (2 * inputs), inputs))
    assert sorted(found) == [(height, inputs) for height in (3, 4, 5, 6) for inputs in (1, 4)]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.slow
@pytest.mark.parametrize("isa", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("order", ["packed", "rows", "columns"])
def test_no_vector_of_one_row_lives_on_the_stack_inside_of_a_loop(isa: str, order: str, tmp_path: Path) -> None:
    loops = loops_with_multiplications(compile_kernel(KernelSpec.of("gemv", order=order), isa), tmp_path)
    assert loops
    for body in loops:
        assert not [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("isa", ["x86-64-v3", "x86-64-v4"])
def test_packed_columns_of_one_row_are_streams_or_asked_for(isa: str, tmp_path: Path) -> None:
    loops = loops_with_multiplications(compile_kernel(KernelSpec.of("gemv", order="packed"), isa), tmp_path)
    products, loads = ([sum(name in line for line in body) for body in loops] for name in ("fmadd", "vbroadcastss"))
    requests = sum("prefetch" in line for body in loops for line in body)
    # Four blocks of 16 columns for each of four inputs, two vectors each.
    streams = sum(made == 32 and read == 4 for made, read in zip(products, loads, strict=True))
    assert (streams, requests) == ((1, 0) if isa == "x86-64-v3" else (0, 1))


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize(
    ("isa", "dtype", "positions"),
    [
        pytest.param(isa, dtype, rows, marks=[] if (isa, dtype, rows) == ("x86-64-v4", "f64", 14) else pytest.mark.slow)
        for isa, dtype, rows in (
            *(("x86-64-v4", "f64", rows) for rows in (14, 8, 1)),
            *(("x86-64-v4", dtype, rows) for dtype in ("s64", "s32", "u32", "s16") for rows in (10, 1)),
            *(("x86-64-v3", dtype, 1) for dtype in ("s64", "s32", "u16")),
            ("x86-64-v3", "f64", 2),
            # There is no product of s64 on this level: its many instructions have no registers beside the sums.
            *(("x86-64-v2", dtype, 1) for dtype in ("f64", "s32", "u16")),
        )
    ],
)
def test_no_vector_of_another_type_lives_on_the_stack_inside_of_a_loop(
    isa: str, dtype: str, positions: int, tmp_path: Path
) -> None:
    spec = KernelSpec.of("typed_gemm", dtype=dtype, positions=positions, blocks=1)
    loops = loops_with_multiplications(compile_kernel(spec, isa), tmp_path)
    assert loops
    for body in loops:
        assert not [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line]


def test_tiles_of_rows_cover_each_row_once() -> None:
    for isa in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
        for rows in range(1, 200):
            positions, large, tiles = row_tiles(isa, rows)
            assert large * positions + (tiles - large) * (positions - 1) == rows
            heights, (height, large, tiles) = product_tiles(isa, rows)
            assert large * height + (tiles - large) * (height - 1) == rows
            assert height in heights
            assert large == tiles or height - 1 in heights
