"""Grid sample on native kernels: every algorithm and padding, numbers that are none, sums without vectors on the stack."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrt.workers.desc import Arg, GridSample, MemoryDesc, PostOp, PrimitiveAttr
from poolrt.workers.desc.operations.grid_sample import SAMPLE_ALGORITHMS, SAMPLE_PADDINGS
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from poolrt.workers.kernels.spec import KernelSpec
from tests.references.grid_sample import grid_sample
from tests.workers.kernels.native.test_conv import loops_with_multiplications
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

NEAR = {"f32": 7 * 2.0**-23, "f64": 1e-14}


def described(
    src: tuple[int, ...], out: tuple[int, ...], algorithm: str = "linear", padding: str = "zeros", corners: bool = False,
    dtype: str = "f32", grid: str = "f32",
) -> GridSample:  # fmt: skip
    places = MemoryDesc((src[0], *out, len(out)), grid)
    return GridSample(
        MemoryDesc(src, dtype), places, MemoryDesc((*src[:2], *out), dtype), algorithm, padding, corners
    )  # fmt: skip


@pytest.mark.parametrize("algorithm", SAMPLE_ALGORITHMS)
def test_planes_are_sampled_wherever_places_are(native: NativeRunner, isa: str, algorithm: str) -> None:
    rng = np.random.default_rng()
    for src, out in (
        ((2, 3, 7, 5), (3, 50)),
        ((1, 2, 40), (150,)),
        ((2, 1, 3, 4, 5), (2, 3, 7)),
        ((1, 2, 6, 1), (9, 4)),
    ):
        padding, corners = str(rng.choice(SAMPLE_PADDINGS)), bool(rng.integers(2))
        dtype, grid = (("f32", "f32"), ("f64", "f64"), ("f32", "f64"))[int(rng.integers(3))]
        op = described(src, out, algorithm, padding, corners, dtype, grid)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert pd.impl_name() == "native:grid_sample"
        values = rng.standard_normal(src).astype(np.float32 if dtype == "f32" else np.float64)
        places = rng.uniform(-2.5, 2.5, op.grid.dims).astype(np.float32 if grid == "f32" else np.float64)
        got = native.results(pd, {Arg.SRC: values, Arg.SRC_1: places})[Arg.DST]
        scale = np.abs(values).max() * 1.5 ** (len(out) if algorithm == "cubic" else 0)
        np.testing.assert_allclose(got, grid_sample(op, values, places), 0, scale * NEAR[dtype], err_msg=str(op))


@pytest.mark.parametrize("padding", SAMPLE_PADDINGS)
def test_only_neighbours_count(native: NativeRunner, padding: str) -> None:
    # The places are 0.9, 1.9, 3.9 and 7.5; the last two are none, and see no element of zeros.
    values, places = np.array([[[np.inf, 1.0, 2.0, np.nan]]], np.float32), [-0.3, 0.2, 1.2, 3.0, np.nan, np.inf]
    op = described(values.shape, (6,), "linear", padding)
    given: dict[int, Any] = {Arg.SRC: values, Arg.SRC_1: np.array(places, np.float32).reshape(op.grid.dims)}
    (found,) = native.results(primitive_desc(op, PrimitiveAttr(), cpu_target()), given)[Arg.DST][0]
    far = {"zeros": 0.0, "border": np.nan, "reflection": np.inf}[padding]
    np.testing.assert_allclose(found[:4], [np.inf, 1.9, np.nan, far], 1e-6)
    if padding == "zeros":
        np.testing.assert_array_equal(found[4:], 0.0)


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    def refused(op: GridSample, why: str, attr: PrimitiveAttr | None = None) -> None:
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, attr or PrimitiveAttr(), cpu_target(), references=False)

    refused(described((1, 2, 4, 4), (3, 3), dtype="s32"), "s32 to s32 by a grid of f32")
    refused(described((1, 2, 2, 2, 2, 2), (3, 3, 3, 3)), "4 spatial dimensions")
    refused(described((1, 2, 1, 1), (3, 3)), "planes of one element")
    refused(described((1, 2, 4, 4), (3, 3)), "post-ops", PrimitiveAttr(post_ops=(PostOp("eltwise", "relu"),)))


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
def test_sums_stay_in_registers(tmp_path: Path) -> None:
    for algorithm in ("linear", "cubic"):
        spec = KernelSpec.of("grid_sample", algorithm=algorithm, dtype="f32", wide=False)
        loops = loops_with_multiplications(compile_kernel(spec, "x86-64-v4"), tmp_path)
        assert loops
        # Arrays of neighbours, which are on the stack, are read by an index; a sum would be kept at a fixed place.
        assert not [line for body in loops for line in body if re.search("[xyz]mm", line) and "(%rsp)" in line]
