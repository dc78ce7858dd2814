"""The batch-reduce kernel's machine code: its hot loops keep every vector in registers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from poolrt.workers.implementations.native.convolution_tiles import tiling
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from poolrt.workers.kernels.spec import KernelSpec

SHAPES = [(56, 56), (7, 7), (1, 49), (5, 5), (3, 3), (2, 2), (1, 1), (9, 9), (1, 3)]


def loops_with_multiplications(binary: bytes, folder: Path) -> list[list[str]]:
    """Return the instructions of each innermost loop that multiplies vectors."""
    return loops(binary, folder, "fmadd|mulp[sd]|pmul|pmadd|dpb")


def loops(binary: bytes, folder: Path, pattern: str) -> list[list[str]]:
    """Return the instructions of each innermost loop that has one of some instructions."""
    (folder / "k.o").write_bytes(binary)
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(folder / "k.o")], capture_output=True, text=True, check=True
    ).stdout
    lines = [line for line in listing.splitlines() if re.match(r"\s+[0-9a-f]+:", line)]
    places = {int(line.split(":")[0], 16): number for number, line in enumerate(lines)}
    found = []
    for number, line in enumerate(lines):
        jump = re.search(r"\sj\w+\s+([0-9a-f]+)", line)
        start = places.get(int(jump[1], 16)) if jump else None
        if start is not None and start <= number:
            body = lines[start : number + 1]
            inner = not any(re.search(r"\sj\w+\s", other) for other in body[:-1])
            if inner and any(re.search(pattern, other) for other in body):
                found.append(body)
    return found


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("isa", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(
    "shape", [pytest.param(shape, marks=[pytest.mark.slow] * (number % 3 > 0)) for number, shape in enumerate(SHAPES)]
)
def test_no_vector_lives_on_the_stack_inside_of_a_loop(shape: tuple[int, int], isa: str, tmp_path: Path) -> None:
    """A spilled accumulator makes each step wait for memory: a third of the speed, depending on the stack's place."""
    tiles = tiling(isa, *shape, blocks=16)
    params: dict[str, Any] = {"tiles": tiles.kinds, "blocks": tiles.blocks, "step": 64, "ragged": False}
    loops = loops_with_multiplications(compile_kernel(KernelSpec.of("conv", **params), isa), tmp_path)
    assert len(loops) >= len(tiles.kinds)
    for body in loops:
        assert not [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("positions", [6, 5, 4])
@pytest.mark.parametrize("kernel", ["conv_chunks", "conv_group_parts"])
@pytest.mark.one_in(3)
def test_a_tile_of_positions_has_no_instruction_in_its_loop_that_could_be_outside(
    kernel: str, positions: int, ragged: bool, tmp_path: Path
) -> None:
    spec = KernelSpec.of(kernel, positions=positions, ragged=ragged)
    loops = loops_with_multiplications(compile_kernel(spec, "x86-64-v3"), tmp_path)
    assert len(loops) == 4
    tiles = [(number, count) for number in (1, 4) for count in (positions - 1, positions)]
    for body, (number, count) in zip(sorted(loops, key=len), tiles, strict=True):
        assert not [line for line in body if "(%rsp" in line]
        # Of each input two products and a broadcast for each position, two weights, and their address; and four to count
        # and to move on.
        assert len(body) <= number * (3 * count + 3) + 4


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("positions", [4, 3, 2])
def test_a_tile_of_a_block_and_a_half_keeps_its_sums_in_registers(positions: int, tmp_path: Path) -> None:
    spec = KernelSpec.of("conv_chunks", positions=positions, ragged=True, wide=True)
    found = loops_with_multiplications(compile_kernel(spec, "x86-64-v3"), tmp_path)
    products = sorted(sum("fmadd" in line for line in body) for body in found)
    assert products == sorted(3 * number * count for number in (1, 4) for count in (positions, positions - 1))
    for body in found:
        assert not [line for line in body if "(%rsp" in line]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("inputs", [2, 4, 8])
def test_the_sums_of_groups_stay_in_registers(inputs: int, tmp_path: Path) -> None:
    spec = KernelSpec.of("conv_grouped", tiles=((14,), (13,)), step=64, ragged=False, inputs=inputs)
    loops = loops_with_multiplications(compile_kernel(spec, "x86-64-v4"), tmp_path)
    found = [sum("fmadd" in line for line in body) for body in loops]
    assert sorted(found) == [13 * inputs, 14 * inputs]
    for body in loops:
        assert not [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("row", [(7, 7, 7, 1, 1, 3), (14, 14, 3, 1, 1, 1), (14, 7, 5, 2, 1, 2), (14, 14, 27, 1, 1, 13)])
def test_the_sums_of_a_short_row_stay_in_registers(row: tuple[int, ...], tmp_path: Path) -> None:
    spec = KernelSpec.of("conv_depthwise", ragged=False, row=row)
    loops = loops_with_multiplications(compile_kernel(spec, "x86-64-v4"), tmp_path)
    width, outputs, taps, stride, _, left = row
    products = sum(0 <= column * stride - left + tap < width for column in range(outputs) for tap in range(taps))
    found = [sum("fmadd" in line for line in body) for body in loops]
    assert sum(count for count in found if count > 8) == products
    for body in loops:
        assert not [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line]


@pytest.mark.parametrize("isa", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_tiles_cover_every_position_once(isa: str) -> None:
    for rows, columns in [*SHAPES, (1, 131), (3, 29), (17, 6), (112, 112), (11, 4)]:
        tiles = tiling(isa, rows, columns, 4)
        seen: list[tuple[int, int]] = []
        for kind, row, column in tiles.places:
            for run, length in enumerate(tiles.kinds[kind]):
                seen.extend((row + run, column + i) for i in range(length))
        assert sorted(seen) == [(r, c) for r in range(rows) for c in range(columns)]
        assert len(tiles.kinds) <= 2
