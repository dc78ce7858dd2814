"""The machine code of primitives for AVX-512 and AMX, which any processor can compile: hot loops keep sums in registers."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from poolrt.workers.desc import Attention, Convolution, Matmul, MatmulNbits, MemoryDesc, OpDesc, PrimitiveAttr
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from poolrt.workers.kernels.spec import KernelSpec

from .test_conv import loops, loops_with_multiplications

V4 = "x86-64-v4"


#: A loop's instructions on tiles and the others, by the panels of rows and blocks of columns that it multiplies.
TILE_LOOPS = {(high, wide): {"load": high + wide, "multiply": high * wide} for high in (1, 2) for wide in (1, 2)}


def matmul(rows: int, left: str, right: str, result: str) -> OpDesc:
    weights = MemoryDesc((256, 512), right, "any")
    return Matmul(MemoryDesc((rows, 256), left), weights, None, MemoryDesc((rows, 512), result))


def batch() -> OpDesc:
    left, right = MemoryDesc((4, 64, 256), "u8"), MemoryDesc((4, 256, 128), "u8")
    return Matmul(left, right, None, MemoryDesc((4, 64, 128), "s32"))


def product(rows: int, depth: int, columns: int, tag: str = "") -> OpDesc:
    weights = MemoryDesc((depth, columns), "f32", tag)
    return Matmul(MemoryDesc((rows, depth), "f32"), weights, None, MemoryDesc((rows, columns), "f32"))


def convolution(groups: int) -> OpDesc:
    src, dst = MemoryDesc((1, 64, 28, 28), "u8", "any"), MemoryDesc((1, 64, 28, 28), "s32", "any")
    weights = MemoryDesc((64, 64 // groups, 3, 3), "s8", "any")
    return Convolution(src, weights, None, dst, (1, 1), (0, 0), (1, 1), (1, 1), groups)


def attention(rows: int, depth: int) -> OpDesc:
    query = MemoryDesc((1, 8, rows, depth), "f32")
    key, dst = MemoryDesc((1, 8, 128, depth), "f32"), MemoryDesc((1, 8, rows, depth), "f32", "any")
    return Attention(query, key, key, None, dst)


def matmul_nbits(rows: int) -> OpDesc:
    weights, scales = MemoryDesc((512, 8, 16), "u8", "any"), MemoryDesc((512, 8), "f32", "any")
    return MatmulNbits(MemoryDesc((rows, 256), "f32"), weights, scales, None, None, MemoryDesc((rows, 512), "f32"), 4)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize(
    ("op", "extension", "name"),
    [
        pytest.param(op, extension, name, id=f"{name} {case}", marks=[] if case == "quick" else pytest.mark.slow)
        for op, extension, name, case in (
            (matmul(64, "u8", "s8", "s32"), "avx512_vnni", "native:packed_vnni", "quick"),
            (matmul(1, "u8", "s8", "s32"), "avx512_vnni", "native:packed_vnni", "one row"),
            (matmul(12, "s8", "s8", "s32"), "avx512_vnni", "native:packed_vnni", "counted weights"),
            (matmul(1, "s8", "s8", "s32"), "avx512_vnni", "native:packed_vnni", "counted weights of one row"),
            (matmul(64, "u8", "s8", "s32"), "", "native:packed_pairs", "matmul"),
            (batch(), "avx512_vnni", "native:batch_vnni", "batch"),
            (batch(), "", "native:batch_pairs", "batch"),
            (matmul(64, "bf16", "bf16", "f32"), "avx512_bf16", "native:packed_bf16", "quick"),
            (product(64, 256, 512), "", "native:tiles", "matmul"),
            (product(64, 256, 3), "", "native:tiles", "few columns"),
            (product(1, 256, 128), "", "native:tiles", "one row"),
            (product(4, 256, 64, "ba"), "", "native:tiles", "few rows"),
            (convolution(1), "avx512_vnni", "native:integer_vnni", "convolution"),
            (convolution(1), "avx_vnni", "native:integer_vnni", "convolution of AVX2"),
            (matmul(64, "u8", "s8", "s32"), "avx_vnni", "native:packed_vnni", "matmul of AVX2"),
            (matmul(1, "s8", "s8", "s32"), "avx_vnni", "native:packed_vnni", "counted weights of one row of AVX2"),
            (convolution(1), "", "native:integer_pairs", "convolution"),
            (convolution(64), "", "native:depthwise_integer", "convolution"),
            (attention(128, 64), "", "native:online", "quick"),
            (attention(128, 256), "", "native:online", "deep"),
            (attention(1, 64), "", "native:online", "one query"),
            (matmul_nbits(64), "", "native:matmul_nbits", "matmul"),
            (matmul_nbits(1), "", "native:matmul_nbits", "one row"),
            (matmul_nbits(1), "avx512_vnni", "native:matmul_nbits_vnni", "whole numbers of one row"),
            (matmul_nbits(4), "avx512_vnni", "native:matmul_nbits_vnni", "whole numbers"),
        )
    ],
)
def test_no_vector_lives_on_the_stack_inside_of_a_loop(op: OpDesc, extension: str, name: str, tmp_path: Path) -> None:
    level = "x86-64-v3" if extension == "avx_vnni" else V4
    target = Target("cpu", "native", (("isa", level), ("extensions", extension))[: 1 + bool(extension)])
    pd = primitive_desc(op, PrimitiveAttr(), target)
    assert pd.impl_name() == name
    found = []
    for spec in pd.program().kernels:
        for body in loops_with_multiplications(compile_kernel(spec, pd.target.instructions), tmp_path):
            found.append(spec.generator)
            spilled = [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line]
            assert not spilled, (spec, len(body), spilled)
    assert found


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("kind", ["f32", "s32"])
def test_running_sums_of_avx512_move_lanes_by_shuffles(kind: str, tmp_path: Path) -> None:
    spec = KernelSpec.of("cumulative_sum", kind=kind, exclusive=False, form="forward")
    (body,) = loops(compile_kernel(spec, V4), tmp_path, r"\svp?add.*zmm")
    # Three distances, and what the next vector begins with: expansions take several times as long.
    assert not [line for line in body if "expand" in line]
    assert sum(bool(re.search(r"\sv(?:perm|shuf|align|pshuf|p?unpck)", line)) for line in body) == 4


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
def test_softmax_finds_the_maximum_of_the_next_row_beside_exponentials(tmp_path: Path) -> None:
    spec = KernelSpec.of("softmax", part="row", dtype="f32", logarithm=False, streams=False)
    (body,) = loops(compile_kernel(spec, V4), tmp_path, r"\svscalefps")
    assert "vmaxps" in joined(body)
    assert "%rsp" not in joined(body)
    # The exponential itself needs 13 instructions; one more each for the difference, the sum and the maximum.
    assert sum(bool(re.search(r"\sv(?!mov)", line)) for line in body) <= 16


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize(
    ("rows", "tag", "generator"),
    [(64, "any", "integer_bytes"), (64, "any", "integer_fits"), (1, "", "integer_rows"), (4, "", "integer_rows")],
)
def test_products_of_bytes_keep_sums_in_registers_of_avx2(rows: int, tag: str, generator: str, tmp_path: Path) -> None:
    src, weights = MemoryDesc((rows, 512), "u8"), MemoryDesc((512, 512), "s8", tag)
    op = Matmul(src, weights, None, MemoryDesc((rows, 512), "s32"))
    pd = primitive_desc(op, PrimitiveAttr(), Target("cpu", "native", (("isa", "x86-64-v3"),)))
    (spec,) = (spec for spec in pd.program().kernels if spec.generator == generator)
    loops = loops_with_multiplications(compile_kernel(spec, pd.target.instructions), tmp_path)
    spilled = [line for body in loops for line in body if re.search("[xy]mm", line) and "(%rsp" in line]
    assert loops
    assert not spilled, spilled


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize(
    ("op", "extensions", "name"),
    [
        (matmul(64, "bf16", "bf16", "f32"), "amx_bf16", "native:amx_bf16"),
        (matmul(64, "u8", "s8", "s32"), "avx512_vnni amx_int8", "native:packed_amx"),
        pytest.param(
            matmul(64, "s8", "s8", "s32"), "avx512_vnni amx_int8", "native:packed_amx", marks=pytest.mark.slow
        ),
        pytest.param(convolution(1), "avx512_vnni amx_int8", "native:integer_amx", marks=pytest.mark.slow),
    ],
)
def test_a_loop_over_tiles_loads_each_factor_once_and_touches_neither_vectors_nor_the_stack(
    op: OpDesc, extensions: str, name: str, tmp_path: Path
) -> None:
    pd = primitive_desc(op, PrimitiveAttr(), Target("cpu", "native", (("isa", V4), ("extensions", extensions))))
    assert pd.impl_name() == name
    loops = [
        body
        for spec in pd.program().kernels
        for body in loops_with_multiplications(compile_kernel(spec, pd.target.instructions), tmp_path)
        if any("tdp" in line for line in body)
    ]
    # Two panels of rows by two blocks of columns load four tiles for four products, 16 cycles each; loads take 8.
    counts = [{"load": joined(body).count("tileload"), "multiply": joined(body).count("tdp")} for body in loops]
    assert {str(count) for count in counts} == {str(count) for count in TILE_LOOPS.values()}
    for body, count in zip(loops, counts, strict=True):
        assert not re.search(r"[xyz]mm\d|%rsp|tilestored|ldtilecfg", joined(body)), body
        # Addresses of four tiles, two steps, and the loop's end.
        assert len(body) <= sum(count.values()) + 8, body


def joined(lines: list[str]) -> str:
    return "\n".join(lines)
