"""The machine code of products of f16 and bf16: hot loops convert in registers and keep every vector there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from poolrt.workers.implementations.native.convolution_tiles import output_blocks, product_tiles
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from poolrt.workers.kernels.spec import KernelSpec

from .test_conv import loops_with_multiplications

pytestmark = pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
#: The levels whose products convert in registers, and all.
WIDE = ("x86-64-v3", "x86-64-v4")
ISAS = ("x86-64-v2", *WIDE)
#: Those that `make test` compiles.
QUICK = (("x86-64-v3", "f16", "packed", 128), ("x86-64-v4", "bf16", "packed", 128))


def assert_no_vector_lives_on_the_stack(spec: KernelSpec, isa: str, folder: Path) -> None:
    loops = loops_with_multiplications(compile_kernel(spec, isa), folder)
    assert loops
    for body in loops:
        assert not [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line]


@pytest.mark.parametrize(
    ("isa", "dtype", "order", "rows"),
    [
        pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow)
        for isa in WIDE
        for dtype in ("f16", "bf16")
        for case in (
            *((isa, dtype, "packed", rows) for rows in (128, 8, 1)),
            *((isa, dtype, order, 1) for order in ("rows", "columns")),
        )
    ],
)
def test_no_vector_of_converted_columns_lives_on_the_stack_inside_of_a_loop(
    isa: str, dtype: str, order: str, rows: int, tmp_path: Path
) -> None:
    heights, _ = product_tiles(isa, rows)
    spec = KernelSpec.of("narrow_gemv", order=order, heights=heights, right=dtype, bias=dtype, dst=dtype)
    assert_no_vector_lives_on_the_stack(spec, isa, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("order", ["packed", "rows", "columns"])
def test_no_vector_of_a_tile_lives_on_the_stack_inside_of_a_loop(isa: str, order: str, tmp_path: Path) -> None:
    heights, _ = product_tiles(isa, 128)
    blocks = output_blocks(isa, heights[0], 8)
    # Without instructions for f16, the conversion multiplies too, 16 x 16 elements at once; its loop is no product.
    dtype = "bf16" if isa == "x86-64-v2" else "f16"
    spec = KernelSpec.of("narrow_gemm", heights=heights, blocks=blocks, order=order, right=dtype, bias="", dst=dtype)
    assert_no_vector_lives_on_the_stack(spec, isa, tmp_path)
